"""Tables and figures of an experiment, as the config describes them."""

from typing import Literal

from pydantic import Field

from hald.settings import Count, Distinct, Section


class Grid(Section):
    """One part of a table: all combinations of its lists. A list that is left out is the table's."""

    images: tuple[str, ...] = Field(default=(), min_length=1, description="Image sets, by name")
    evaluations: tuple[str, ...] = Field(default=(), min_length=1, description="Evaluations, by name")
    students: tuple[str, ...] = Field(default=(), min_length=1, description="Students, by name")
    ipc: Distinct[Count] = Field(default=(), min_length=1, description="Images per class")
    slc: Distinct[Count] = Field(default=(), min_length=1, description="Soft labels per class")
    sli: Distinct[Count] = Field(default=(), min_length=1, description="Soft labels per image, instead of slc")
    label: str | None = Field(
        default=None, description="What the field `label` shows for these cells; empty: the image set's name"
    )


class Table(Section):
    """One table, as the config describes it. Its grids are what asks for runs.

    The same id in several experiments is one table with the cells of all of them.
    """

    caption: str = Field(description="Title above the table")
    images: tuple[str, ...] = Field(default=(), min_length=1, description="Image sets of the grid, by name")
    evaluations: tuple[str, ...] = Field(default=(), min_length=1, description="Evaluations of the grid, by name")
    students: tuple[str, ...] = Field(default=(), min_length=1, description="Students of the grid, by name")
    ipc: Distinct[Count] = Field(default=(), min_length=1, description="Images per class")
    slc: Distinct[Count] = Field(default=(), min_length=1, description="Soft labels per class")
    sli: Distinct[Count] = Field(default=(), min_length=1, description="Soft labels per image, instead of slc")
    grids: tuple[Grid, ...] = Field(
        default=(), description="Parts of a table that is not one grid; each takes the lists above it lacks"
    )
    published_as: str | None = Field(
        default=None,
        description="Table of config/paper/tables.yaml whose numbers stand beside ours; empty: that of its own id",
    )
    seeds: int = Field(default=3, ge=1, description="Students trained per cell, with seeds 0 .. seeds-1")
    rows: tuple[str, ...] = Field(
        default=("images", "slc"),
        description="Fields that make a row: dataset, images, ipc, slc, sli, student, evaluation, label",
    )
    columns: tuple[str, ...] = Field(default=("evaluation",), min_length=1, description="Fields that make a column")
    analysis: str | None = Field(default=None, description="Analysis that the numbers come from, instead of runs")
    values: dict[str, str] = Field(
        default={},
        description=(
            "Numbers of the analysis: what the field `metric` shows -> place in its result, e.g. paper.mean_strong"
        ),
    )


class Figure(Section):
    """One figure: drawn from a table or from analyses."""

    kind: Literal[
        "accuracy_over_slc",
        "accuracy_over_bytes",
        "accuracy_over_steps",
        "gain",
        "learning_curves",
        "lvsd",
        "gradients",
        "updates",
        "landscape",
        "embedding",
        "variance",
        "drift",
    ] = Field(description="How it is drawn")
    caption: str = Field(description="What it shows, in words")
    table: str | None = Field(default=None, description="Table whose cells are drawn (the first five kinds)")
    where: dict[str, str] = Field(default={}, description="Only cells with these fields, e.g. {images: rded}")
    analyses: tuple[str, ...] = Field(default=(), description="Analyses whose results are drawn (the other kinds)")
