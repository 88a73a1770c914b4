"""The ledger: which code computes the numbers of which version of a part.

`hald/ledger/<part>.json` lists the versions of a part, each with the digests of the code that computes its numbers.
`hald bless` adds to it. Code that the ledger does not know counts by its digest, so an edit makes new keys.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hald.code_digests import SOURCE, entry_modules
from hald.files import read_json

LEDGER = SOURCE / "ledger"

Versions = list[dict[str, Any]]  # [{"version": 1, "digests": ["…"]}], oldest first


def is_keyed(part: str) -> bool:
    """Whether keys name a part. Tables and figures have fixed names instead, and are quickly made again."""
    return part != "tables" and not part.startswith("figure.")


def keyed_parts() -> list[str]:
    """The parts that keys name."""
    return [part for part in entry_modules() if is_keyed(part)]


def ledger_file(part: str) -> Path:
    """The file with the versions of a part."""
    return LEDGER / f"{part}.json"


def versions_of(part: str) -> Versions:
    """The versions of a part, none if it was never blessed."""
    file = ledger_file(part)
    return list(read_json(file)) if file.exists() else []


def version_of(part: str, digest: str) -> int | None:
    """The newest version that has this code."""
    found = [int(entry["version"]) for entry in versions_of(part) if digest in entry["digests"]]
    return found[-1] if found else None


def code_name(part: str, digest: str) -> str:
    """What keys call the code of a part: its version, or the digest itself if no version has it."""
    return f"{part}:{version_of(part, digest) or digest}"


def code_names(digests: Mapping[str, str]) -> dict[str, str]:
    """The names of the code of all parts that keys name."""
    return {part: code_name(part, digests[part]) for part in digests if is_keyed(part)}
