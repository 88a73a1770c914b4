"""Tables, analyses and figures of an experiment, as the config describes them."""

from dataclasses import dataclass
from typing import Literal

from hald.plain import option


@dataclass(frozen=True)
class Grid:
    """One part of a table: all combinations of its lists. A list that is left out is the table's."""

    images: tuple[str, ...] = option("Image sets, by name", (), minItems=1)
    evaluations: tuple[str, ...] = option("Evaluations, by name", (), minItems=1)
    students: tuple[str, ...] = option("Students, by name", (), minItems=1)
    ipc: tuple[int, ...] = option("Images per class", (), minItems=1, minimum=1, uniqueItems=True)
    slc: tuple[int, ...] = option("Soft labels per class", (), minItems=1, minimum=1, uniqueItems=True)
    sli: tuple[int, ...] = option("Soft labels per image, instead of slc", (), minItems=1, minimum=1, uniqueItems=True)
    label: str | None = option("What the field `label` shows for these cells; empty: the image set's name", None)


@dataclass(frozen=True)
class Table:
    """One table, as the config describes it. Its grids are what asks for runs.

    The same id in several experiments is one table with the cells of all of them.
    """

    caption: str = option("Title above the table")
    images: tuple[str, ...] = option("Image sets of the grid, by name", (), minItems=1)
    evaluations: tuple[str, ...] = option("Evaluations of the grid, by name", (), minItems=1)
    students: tuple[str, ...] = option("Students of the grid, by name", (), minItems=1)
    ipc: tuple[int, ...] = option("Images per class", (), minItems=1, minimum=1, uniqueItems=True)
    slc: tuple[int, ...] = option("Soft labels per class", (), minItems=1, minimum=1, uniqueItems=True)
    sli: tuple[int, ...] = option("Soft labels per image, instead of slc", (), minItems=1, minimum=1, uniqueItems=True)
    grids: tuple[Grid, ...] = option("Parts of a table that is not one grid; each takes the lists above it lacks", ())
    published_as: str | None = option(
        "Table of config/paper/tables.yaml whose numbers stand beside ours; empty: that of its own id", None
    )
    seeds: int = option("Students trained per cell, with seeds 0 .. seeds-1", 3, minimum=1)
    rows: tuple[str, ...] = option(
        "Fields that make a row: dataset, images, ipc, slc, sli, student, evaluation, label", ("images", "slc")
    )
    columns: tuple[str, ...] = option("Fields that make a column", ("evaluation",), minItems=1)
    analysis: str | None = option("Analysis that the numbers come from, instead of runs", None)
    values: dict[str, str] = option(
        "Numbers of the analysis: what the field `metric` shows -> place in its result, e.g. paper.mean_strong",
        {},
    )


@dataclass(frozen=True)
class Analysis:
    """One analysis: what is looked at (all combinations of its lists), and how much of it."""

    kind: Literal[
        "lvsd",
        "crop_consistency",
        "reference_consistency",
        "teacher_consistency",
        "gradients",
        "updates",
        "landscape",
        "embedding",
        "theory",
        "drift",
        "storage",
    ] = option("What is measured (docs/analyses.md)")
    images: tuple[str, ...] = option("Image sets, by name", minItems=1)
    ipc: tuple[int, ...] = option("Images per class", minItems=1, minimum=1, uniqueItems=True)
    slc: int | None = option("Soft labels per class of students or labels; empty: one per image", None, minimum=1)
    student: str | None = option("Student, by name; empty: the experiment's first", None)
    evaluations: tuple[str, ...] = option("Evaluations whose students are looked at, by name", ("soft_only", "hald"))
    teachers: tuple[str, ...] = option("Teachers that are asked (lvsd); empty: the experiment's", ())
    reference: str | None = option("Evaluation of the reference student (reference_consistency)", None)
    reference_slc: int | None = option("Its soft labels per class", None, minimum=1)
    samples: int | None = option(
        "How many: images (lvsd, drift), pairs per class (crop_consistency), classes (embedding); empty: the paper's",
        None,
        minimum=1,
    )
    crops: int | None = option("Crops per image (lvsd, the consistencies, drift); empty: the paper's", None, minimum=2)
    epochs: int = option("Epochs of the training whose gradients are compared", 100, minimum=1)
    resolution: int = option("Points along each side of a landscape, an odd number", 21, minimum=3)
    plane: Literal["pca", "umap"] = option(
        "How features are put into the plane (embedding); umap needs umap-learn: `pip install umap-learn`", "pca"
    )
    seed: int = option("Seed of all draws", 42, minimum=0)


@dataclass(frozen=True)
class Figure:
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
    ] = option("How it is drawn")
    caption: str = option("What it shows, in words")
    table: str | None = option("Table whose cells are drawn (the first five kinds)", None)
    where: dict[str, str] = option("Only cells with these fields, e.g. {images: rded}", {})
    analyses: tuple[str, ...] = option("Analyses whose results are drawn (the other kinds)", ())
