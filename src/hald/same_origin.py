"""Artefacts that are used together must have the same classes and come from the same real data."""

import hashlib

from hald.errors import UserError
from hald.keys import canonical


def class_digest(classes: list[str]) -> str:
    """Four hex digits that name a class order in messages; artefacts store and compare the whole list."""
    return hashlib.sha256(canonical(classes).encode()).hexdigest()[:4]


def require_same_classes(a: list[str], a_name: str, b: list[str], b_name: str, remedy: str) -> None:
    """Refuse two artefacts whose classes differ in number, name or order: labels would silently be wrong."""
    if a == b:
        return
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    raise UserError(
        f"{a_name} has class order {class_digest(a)} ({len(a)} classes{_at(a, at)}), "
        f"{b_name} has {class_digest(b)} ({len(b)} classes{_at(b, at)}): they do not belong together. {remedy}"
    )


def require_same_data(a: str, a_name: str, b: str, b_name: str) -> None:
    """Refuse artefacts that come from different real data (digests of prepared datasets; empty: not known)."""
    if a and b and a != b:
        raise UserError(
            f"{a_name} comes from other real images (digest {a[:8]}) than {b_name} ({b[:8]}), although the dataset has "
            f"the same name; give one of the two datasets another name in the config, or remove what is old"
        )


def _at(classes: list[str], i: int) -> str:
    return f", number {i} is '{classes[i]}'" if i < len(classes) else ""
