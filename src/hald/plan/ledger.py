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


def ledger_file(stage: str, folder: Path = LEDGER) -> Path:
    """The file with the versions of a stage."""
    return folder / f"{stage}.json"


def versions_of(stage: str, folder: Path = LEDGER) -> Versions:
    """The versions of a stage, none if it was never blessed."""
    file = ledger_file(stage, folder)
    return list(read_json(file)) if file.exists() else []


def code_name(stage: str, digest: str, folder: Path = LEDGER) -> str:
    """What keys call the code of a stage: its version, or the digest itself if no version has it."""
    found = [entry["version"] for entry in versions_of(stage, folder) if digest in entry["digests"]]
    return f"{stage}:{found[-1] if found else digest}"


def code_names(digests: Mapping[str, str], folder: Path = LEDGER) -> dict[str, str]:
    """The names of the code of all stages that have keys."""
    return {stage: code_name(stage, digests[stage], folder) for stage in STAGES}
