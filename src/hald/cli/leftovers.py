"""What lies about in a `stores:` folder and is not needed: stores, left-over build folders, old frozen plans.

Nothing is removed but on request; imported stores, stores with names of their own, what others made or grew (what they
need is in their configs, not in ours) and whatever a living process may be using are kept even then.
"""

import os
import platform
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hald.errors import UserError
from hald.files import aside, explained, tree_bytes
from hald.jobs.claims import STALE, Claim, alive
from hald.pipeline import FROZEN, Plan

DAY = 86400.0
NAMED = re.compile(r"(?P<slug>.+)_(?P<key>[0-9a-f]{10})\.zarr")
BUILD = re.compile(r"\..+~(?P<host>[^~]*)~(?P<pid>\d+)~[0-9a-f]{8}")
NAMELESS = re.compile(r"\..+\.zarr\.([0-9a-f]{32}|\w{8})")  # as earlier versions named them


@dataclass(frozen=True)
class Leftover:
    """Something that no experiment needs."""

    path: Path
    why: str
    written: float  # when it was last changed
    kept: str = ""  # why it stays even so

    @property
    def owner(self) -> str:
        """User whose file it is."""
        return _owner(self.path)

    @property
    def bytes(self) -> int:
        """Bytes of all its files."""
        return tree_bytes(self.path) if self.path.is_dir() else self.path.stat().st_size


def stores_in(folder: Path) -> Iterator[Path]:
    """Finished stores below a `stores:` folder."""
    yield from sorted(path.parent for path in folder.glob("[!.]*/[!.]*.zarr/zarr.json"))


def find_leftovers(plans: list[Plan], imported: bool, others: bool) -> Iterator[Leftover]:
    """What none of the plans needs. Imported stores and those with names of their own go only if `imported`, what other
    users made only if `others`.
    """
    for found in _leftovers(plans, imported):
        users = "" if others else " and ".join(sorted(_other_users(found.path)))
        yield replace(found, kept=found.kept or (f"{users} made it; goes only with --others" if users else ""))


def _leftovers(plans: list[Plan], imported: bool) -> Iterator[Leftover]:
    needed = {plan.folder("relabel", key) for plan in plans for key in plan.labels}
    folder = Path(plans[0].stores)
    for path in stores_in(folder):
        if path not in needed:
            yield _store(path, needed, imported)
    for path in sorted([*folder.glob(".*"), *folder.glob("*/.*")]):
        if path.is_dir() and (BUILD.fullmatch(path.name) or NAMELESS.fullmatch(path.name)):
            yield _build_folder(path)
    yield from _plans(FROZEN)


def remove(leftover: Leftover) -> None:
    """Remove one thing, out of sight first: what is half removed is never taken for a store."""
    with explained(f"cannot remove {leftover.path}"):
        if leftover.path.is_file():
            leftover.path.unlink()
            return
        if _live_claim(leftover.path):
            raise UserError(f"{leftover.path} is being written to since a moment ago; it was not removed")
        hidden = aside(leftover.path)
        leftover.path.rename(hidden)
        shutil.rmtree(hidden)


def _store(path: Path, needed: set[Path], imported: bool) -> Leftover:
    markers = [entry.stat().st_mtime for entry in (path / "views").glob("?????.json")]
    written = max(markers, default=(path / "zarr.json").stat().st_mtime)
    try:
        from hald.labels.store import LabelStore

        header = LabelStore(path).header
    except UserError as error:
        return Leftover(path, f"cannot be read: {error}", written, "look at it and remove it by hand")
    name = NAMED.fullmatch(path.name)
    own = not name or name["key"] != header.key
    why = "was imported" if header.imported else "has a name of its own" if own else _why(path, needed)
    kept = _live_claim(path)
    if own and not imported:
        kept = kept or "goes only with --imported"
    return Leftover(path, why, written, kept)


def _why(path: Path, needed: set[Path]) -> str:
    """A store of our own: made with other settings or code, or for something that no experiment has."""
    slug = path.name.rsplit("_", 1)[0]
    today = sorted(other.name for other in needed if other.parent == path.parent and other.name.startswith(f"{slug}_"))
    if today:
        return f"settings or code have changed; today's store is {', '.join(today)}"
    return f"no experiment has {path.parent.name}/{slug}"


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except KeyError:
        return str(path.stat().st_uid)


def _other_users(path: Path) -> set[str]:
    """Who but us made a store, or views of it."""
    return {_owner(part) for part in [path, *path.glob("views/?????.json")] if part.stat().st_uid != os.getuid()}


def _live_claim(store: Path) -> str:
    """Who is writing to a store, if somebody is."""
    for path in sorted((store / "claims").glob("?????.json")):
        claim = Claim(path)
        if claim.is_live():
            return f"view {int(path.stem)} is being written by {claim.holder()}"
    return ""


def _build_folder(path: Path) -> Leftover:
    """What a killed process left; one that may still live keeps its folder."""
    written = max((entry.stat().st_mtime for entry in [path, *path.rglob("*")]), default=0.0)
    silent = time.time() - written
    match = BUILD.fullmatch(path.name)
    if match and match["host"] == platform.node():
        gone = silent > STALE and not alive(int(match["pid"]))
    else:
        gone = silent > DAY
    who = f"process {match['pid']} on {match['host']}" if match else "a process"
    return Leftover(path, f"{who} began it and did not finish", written, "" if gone else f"{who} may be at work on it")


def _plans(folder: Path) -> Iterator[Leftover]:
    """Frozen plans of runs that began more than a day ago; all stay while a run may be going on."""
    locked = any(Path(".snakemake/locks").glob("*"))
    busy = "snakemake runs in this folder (or was killed: `snakemake --unlock`)" if locked else ""
    for path in sorted(folder.glob("*.json")):
        written = path.stat().st_mtime
        if time.time() - written > DAY:
            yield Leftover(path, "the plan of an earlier run", written, busy)
