"""Keys: what a piece of work is, in ten hex digits. Same parameters, same inputs, same code: same key."""

import dataclasses
import hashlib
import json
from typing import Any


def canonical(data: Any) -> str:
    """JSON with sorted keys and no white space: one text per value."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def key_of(stage: str, spec: Any, code: str) -> str:
    """The key of a spec: ten hex digits over stage, parameters (with the keys of its inputs) and the code's name."""
    return hashlib.sha256(canonical([stage, identity(spec), code]).encode()).hexdigest()[:10]


def identity(spec: Any) -> Any:
    """The plain JSON values of a spec that its key is made from.

    A dataclass leaves out the fields in its NOT_IDENTITY, which change no number, and those in its LATER that have the
    default given there. Such a field was added after keys existed: work that does not use it keeps its key. A default
    in LATER never changes; another default is another field.
    """
    if dataclasses.is_dataclass(spec):
        values = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
        later = getattr(spec, "LATER", {})
        left_out = {*getattr(spec, "NOT_IDENTITY", ()), *(name for name in later if values[name] == later[name])}
        return {name: identity(value) for name, value in values.items() if name not in left_out}
    if isinstance(spec, tuple | list):
        return [identity(item) for item in spec]
    if isinstance(spec, dict):
        return {str(name): identity(item) for name, item in spec.items()}
    return spec
