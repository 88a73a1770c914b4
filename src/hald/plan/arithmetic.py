"""The plan's arithmetic: the part of a store that an SLC means, blocks of units."""

from collections.abc import Iterable

from hald.errors import UserError
from hald.specs.labels import LabelsSpec


def pool_size(labels: LabelsSpec, ipc: int, slc: int, rounding: str) -> int:
    """Stored batches that an SLC amounts to: whole views, then whole batches of one more view (or none: `floor`)."""
    views, rest = divmod(slc, ipc)
    more = 0 if rounding == "floor" else rest * labels.classes // labels.batch
    pool = views * labels.batches + more
    if pool == 0:
        raise UserError(
            f"SLC {slc} at IPC {ipc} leaves no whole batch of labels (batch {labels.batch}, {labels.classes} classes); "
            f"ask for SLC >= {ipc}" + (" or slc_rounding: batches" if rounding == "floor" else "")
        )
    return pool


def missing_blocks(done: Iterable[bool], size: int, needed: int | None = None) -> list[int]:
    """Units 0, 1, ... in aligned blocks of `size`: for every block that lacks one of the first `needed`, its last gap.

    A job that is given this unit does all undone units of its block, so blocks never overlap and a killed job's
    successor finds its way without a list.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for unit, finished in enumerate(done):
        if not finished:
            first.setdefault(unit // size, unit)
            last[unit // size] = unit
    return [unit for block, unit in sorted(last.items()) if needed is None or first[block] < needed]
