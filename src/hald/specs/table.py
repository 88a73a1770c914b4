"""What a results table is: runs, which of their fields make its rows and columns, and what the paper prints."""

from dataclasses import dataclass


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
    """One cell: where it stands, which run fills it, and the paper's number."""

    row: tuple[str, ...]
    column: tuple[str, ...]
    run: str  # key of the run
    paper: Printed | None = None


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
