"""The ledger: which code computes the numbers of which version of a stage.

`hald/ledger/<stage>.json` lists the versions of a stage, each with the digests of the code that computes its numbers.
`hald bless` adds to it. Code that the ledger does not know counts by its digest, so an edit makes new keys.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hald.code_digests import ENTRY, SOURCE
from hald.files import read_json

LEDGER = SOURCE / "ledger"
# Tables and figures have fixed names instead of keys and are quickly made again.
STAGES = tuple(stage for stage in ENTRY if stage not in ("tables", "figures"))

Versions = list[dict[str, Any]]  # [{"version": 1, "digests": ["…"]}], oldest first


def ledger_file(stage: str) -> Path:
    """The file with the versions of a stage."""
    return LEDGER / f"{stage}.json"


def versions_of(stage: str) -> Versions:
    """The versions of a stage, none if it was never blessed."""
    file = ledger_file(stage)
    return list(read_json(file)) if file.exists() else []


def version_of(stage: str, digest: str) -> int | None:
    """The newest version that has this code."""
    found = [int(entry["version"]) for entry in versions_of(stage) if digest in entry["digests"]]
    return found[-1] if found else None


def code_name(stage: str, digest: str) -> str:
    """What keys call the code of a stage: its version, or the digest itself if no version has it."""
    return f"{stage}:{version_of(stage, digest) or digest}"


def code_names(digests: Mapping[str, str]) -> dict[str, str]:
    """The names of the code of all stages that have keys."""
    return {stage: code_name(stage, digests[stage]) for stage in STAGES}
