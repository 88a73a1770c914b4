"""The user's config as dataclasses. Schema and config/README.md are generated from them."""

from dataclasses import dataclass

from hald.specs.base import option
from hald.specs.dataset import Dataset
from hald.specs.images import Images
from hald.specs.labels import Labels
from hald.specs.run import Evaluation, Student
from hald.specs.table import Table
from hald.specs.teacher import Teacher


@dataclass(frozen=True)
class Jobs:
    """How work is cut into jobs. Never part of a key: results do not depend on it."""

    views_per_job: int = option("Label views that one relabel job computes", 20, minimum=1)
    seeds_per_job: int = option("Seeds of one setting that one evaluation job trains", 3, minimum=1)
    workers: int = option("Worker processes that decode images of large datasets", 4, minimum=0)


@dataclass(frozen=True)
class Config:
    """config/config.yaml: which experiments, and where things are kept."""

    experiments: tuple[str, ...] = option(
        "Names of files in config/experiments/ (without .yaml)", ("demo",), minItems=1
    )
    results: str = option("Folder of everything that is made", "results")
    stores: str = option(
        "Folder of the soft-label stores. A store holds its images, its labels and its teacher, so a folder shared "
        "between users or runs spares them all three",
        "results/labels",
    )
    jobs: Jobs = option("How work is cut into jobs", Jobs())
    datasets: dict[str, Dataset] = option(
        "Your datasets, and changes to those of config/datasets.yaml (merged key by key)", {}
    )
    override: dict[str, dict[str, object]] = option(
        "Changes to experiments, by name (merged key by key): try a setting without editing its file", {}
    )


@dataclass(frozen=True)
class Experiment:
    """One file of config/experiments/."""

    dataset: str = option("Name of the dataset")
    teacher: str = option("Name of the teacher that scores images and labels views where nothing else is said")
    teachers: dict[str, Teacher] = option("Teachers by name")
    images: dict[str, Images] = option("Image sets by name; a table says at which IPC")
    students: dict[str, Student] = option("Students by name")
    evaluations: dict[str, Evaluation] = option("Training protocols by name")
    tables: dict[str, Table] = option("Results tables by id: `snakemake results/tables/<id>.csv` makes one")
    labels: Labels = option("How views are drawn and labelled", Labels())
    threads: int = option("CPU threads of every job; part of the keys, because sums depend on it", 2, minimum=1)
