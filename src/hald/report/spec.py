"""What is shown.

A table: runs, which of their fields make its rows and columns, what the paper prints. A figure: a way of drawing, and
the table or the analyses that it draws.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Printed:
    """The paper's number for a cell, and what has to be said about it."""

    value: float
    std: float | None
    dagger: bool  # copied by the paper from another publication
    inferred: tuple[str, ...]  # fields that the paper's table does not print
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """One cell: where it stands, which run fills it, and the paper's number.

    Or which analysis: then `subject` is the number of one of its subjects, and `value` the path of a number in what was
    found about it.
    """

    row: tuple[str, ...]
    column: tuple[str, ...]
    run: str  # key of the run, or of the analysis
    paper: Printed | None = None
    place: dict[str, Any] = field(default_factory=dict)  # all fields that rows and columns may show
    subject: int = 0
    value: str | None = None


@dataclass(frozen=True)
class TableSpec:
    """A table resolved by the plan. `number` is the paper's."""

    id: str
    caption: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    seeds: int
    cells: tuple[Cell, ...]
    number: int | None = None

    @property
    def of_analyses(self) -> bool:
        """Whether its cells come from analyses, not from runs."""
        return any(cell.value is not None for cell in self.cells)


@dataclass(frozen=True)
class FigureSpec:
    """A figure resolved by the plan: the cells of a table, or the results of analyses (keys)."""

    id: str
    kind: str
    caption: str
    table: TableSpec | None
    analyses: tuple[str, ...]
