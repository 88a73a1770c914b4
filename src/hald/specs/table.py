"""What a results table is: a grid of runs, and which of their fields make its rows and columns."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """One cell: where it stands and which run fills it."""

    row: tuple[str, ...]
    column: tuple[str, ...]
    run: str  # key of the run


@dataclass(frozen=True)
class TableSpec:
    """A table resolved by the plan."""

    id: str
    caption: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    seeds: int
    cells: tuple[Cell, ...]
