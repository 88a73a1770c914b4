"""The paper's printed numbers, found by table and cell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hald.config.read import read_yaml
from hald.report.spec import Printed

PLACE = ("dataset", "images", "evaluation", "student", "ipc", "slc", "metric", "stage")


@dataclass(frozen=True)
class PaperTables:
    """config/paper/tables.yaml: the paper's number of each table, and its accuracies by place."""

    numbers: dict[str, int] = field(default_factory=dict)
    cells: dict[str, dict[tuple[Any, ...], Printed]] = field(default_factory=dict)

    def printed(self, table: str, place: Mapping[str, Any]) -> Printed | None:
        """The paper's number for a cell: same dataset, images, evaluation, student, IPC, SLC and metric."""
        return self.cells.get(table, {}).get(tuple(place.get(name) for name in PLACE))


def read_paper(root: Path) -> PaperTables:
    """Read config/paper/tables.yaml below `root`."""
    content = read_yaml(root / "config/paper/tables.yaml")
    cells = {name: _by_place(table["records"]) for name, table in content.items()}
    return PaperTables({name: table["number"] for name, table in content.items() if "number" in table}, cells)


def _by_place(records: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, ...], Printed]:
    """Records by what they are about; of two about the same thing the first counts, the other becomes a note."""
    found: dict[tuple[Any, ...], Printed] = {}
    for record in records:
        place, printed = tuple(record.get(part) for part in PLACE), _printed(record)
        if place in found:
            first, said = found[place], "; ".join((f"elsewhere {printed.value:g}", *printed.notes))
            found[place] = replace(first, notes=(*first.notes, said))
        else:
            found[place] = printed
    return found


def _printed(record: Mapping[str, Any]) -> Printed:
    notes = [record["note"]] if "note" in record else []
    if "slc_stored" in record:
        notes.append(f"whole label epochs give SLC {record['slc_stored']}")
    if "gain" in record:
        notes.append(f"the paper prints a gain of {record['gain']:+g}, which its cells do not give")
    return Printed(
        value=record["value"],
        std=record.get("std"),
        dagger=record.get("dagger", False),
        inferred=tuple(record.get("inferred", ())),
        notes=tuple(notes),
    )
