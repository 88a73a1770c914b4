"""A table of the config -> the settings of its cells."""

import itertools
from collections.abc import Iterator
from typing import Any

from hald.errors import UserError, suggest
from hald.report.settings import Grid, Table

FIELDS = ("dataset", "images", "ipc", "slc", "sli", "student", "evaluation", "label")
Place = dict[str, Any]


def places(table: Table, dataset: str, where: str) -> list[Place]:
    """What every cell of a table is about, grid by grid, in the order of the definition."""
    for name in table.rows + table.columns:
        if name not in FIELDS:
            raise UserError(f"{where} shows '{name}'. {suggest(name, FIELDS)}")
    found = [place for grid in table.grids or (Grid(),) for place in _product(table, grid, dataset, where)]
    _require_distinct(table, found, where)
    return found


def _product(table: Table, grid: Grid, dataset: str, where: str) -> Iterator[Place]:
    """All combinations of one grid; what it does not give is the table's."""
    given = {name: getattr(grid, name) or getattr(table, name) for name in LISTS}
    if grid.slc or grid.sli:
        given |= {"slc": grid.slc, "sli": grid.sli}
    if bool(given["slc"]) == bool(given["sli"]):
        raise UserError(f"{where} needs `slc` (soft labels per class) or `sli` (per image), one of the two")
    missing = next((name for name in LISTS if not given[name] and name not in ("slc", "sli")), None)
    if missing:
        raise UserError(f"{where} has no `{missing}`; give it to the table or to each of its grids")
    names = [name for name in LISTS if given[name]]
    for values in itertools.product(*(given[name] for name in names)):
        one = dict(zip(names, values, strict=True))
        slc = one["slc"] if "slc" in one else one["sli"] * one["ipc"]
        yield {
            "dataset": dataset,
            "images": one["images"],
            "ipc": one["ipc"],
            "slc": slc,
            "sli": f"{slc / one['ipc']:g}",
            "student": one["students"],
            "evaluation": one["evaluations"],
            "label": grid.label or one["images"],
        }


def _require_distinct(table: Table, found: list[Place], where: str) -> None:
    """Refuse two different cells in one place."""
    shown = table.rows + table.columns
    taken: dict[tuple[Any, ...], Place] = {}
    for place in found:
        other = taken.setdefault(tuple(place[name] for name in shown), place)
        if other != place:
            differs = next(name for name in FIELDS if other[name] != place[name] and name not in ("sli", "label"))
            raise UserError(
                f"{where} has {other[differs]!r} and {place[differs]!r} of '{differs}' in one cell, but shows it "
                f"neither in rows nor in columns; add it to one of them"
            )


PLACE = (*FIELDS, "stage", "metric")  # all that may name a cell; the last two only in tables of analyses
LISTS = ("images", "ipc", "slc", "sli", "students", "evaluations")
