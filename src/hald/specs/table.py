"""What a results table is: a grid of runs, and which of their fields make its rows and columns."""

from dataclasses import dataclass

from hald.specs.base import option


@dataclass(frozen=True)
class Table:
    """One table, as the config describes it. Its grid is what asks for runs."""

    caption: str = option("Title above the table")
    images: tuple[str, ...] = option("Image sets of the grid, by name", minItems=1)
    evaluations: tuple[str, ...] = option("Evaluations of the grid, by name", minItems=1)
    students: tuple[str, ...] = option("Students of the grid, by name", minItems=1)
    ipc: tuple[int, ...] = option("Images per class", minItems=1, minimum=1)
    slc: tuple[int, ...] = option("Soft labels per class", minItems=1, minimum=1)
    seeds: int = option("Students trained per cell, with seeds 0 .. seeds-1", 3, minimum=1)
    rows: tuple[str, ...] = option("Fields that make a row: images, ipc, slc, student, evaluation", ("images", "slc"))
    columns: tuple[str, ...] = option("Fields that make a column", ("evaluation",), minItems=1)


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
