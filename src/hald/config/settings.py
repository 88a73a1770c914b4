"""The user's config. Schema and config/README.md are generated from these settings and those of the stages.

Settings are apart from the specs, so that a new option or other words never change a key.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Union

from pydantic import Field

from hald.analysis.settings import Analysis
from hald.datasets.settings import AnyDataset
from hald.evaluation.settings import Evaluation, Student
from hald.labels.settings import Labels
from hald.registry import plugins
from hald.report.settings import Figure, Table
from hald.settings import Decay, Section
from hald.squeeze.settings import Teacher
from hald.synthesis.settings import ImageSet

if TYPE_CHECKING:
    Images = ImageSet
else:  # one of the methods
    METHODS = tuple(module.Settings for module in plugins("hald.synthesis.methods", "settings").values())
    Images = Annotated[Union[METHODS], Field(discriminator="method")]  # noqa: UP007


@dataclass(frozen=True)
class Jobs:
    """How work is cut into jobs. Never part of a key: results do not depend on it."""

    target_minutes: Annotated[
        float,
        Field(
            gt=0,
            description=(
                "How long a job should last. Sizes below that are empty follow from it and from recorded timings of "
                "the same kind of work, when a run starts; shorter where four jobs of at least a minute can share it"
            ),
        ),
    ] = 60.0
    views_per_job: Annotated[
        int | None,
        Field(
            ge=1,
            description=(
                "Label views that one relabel job computes; empty: from target_minutes, or 20 before there are timings"
            ),
        ),
    ] = None
    seeds_per_job: Annotated[
        int | None,
        Field(ge=1, description="Seeds of one setting that one evaluation job trains; empty: likewise, or 3"),
    ] = None
    units_per_job: Annotated[
        int | None,
        Field(
            ge=1,
            description=(
                "Units of synthesis that one job computes: classes (RDED's ranking, LPLD), or images of a class chunk; "
                "empty: likewise, or 10"
            ),
        ),
    ] = None
    workers: Annotated[int, Field(ge=0, description="Worker processes that decode images of large datasets")] = 4


class Config(Section):
    """config/config.yaml: which experiments, and where things are kept."""

    experiments: tuple[str, ...] = Field(
        default=("demo",),
        min_length=1,
        description=(
            "Files of config/experiments/ by name (without .yaml), others by path: studies/cpu/experiments/base"
        ),
    )
    results: str = Field(default="results", description="Folder of everything that is made")
    stores: str = Field(
        default="results/labels",
        description=(
            "Folder of the soft-label stores. A store holds its images, its labels and its teacher, so a folder "
            "shared between users or runs spares them all three"
        ),
    )
    jobs: Jobs = Field(default=Jobs(), description="How work is cut into jobs")
    datasets: dict[str, AnyDataset] = Field(
        default={}, description="Your datasets, and changes to those of config/datasets.yaml (merged key by key)"
    )
    override: dict[str, dict[str, object]] = Field(
        default={},
        description="Changes to experiments, by name (merged key by key): try a setting without editing its file",
    )


class Experiment(Section):
    """One file of config/experiments/."""

    dataset: str = Field(description="Name of the dataset")
    teacher: str = Field(
        description="Name of the teacher that scores images and labels views where nothing else is said"
    )
    teachers: dict[str, Teacher] = Field(description="Teachers by name")
    images: dict[str, Images] = Field(description="Image sets by name; a table says at which IPC")
    students: dict[str, Student] = Field(description="Students by name")
    tables: dict[str, Table] = Field(
        description="Results tables by id: `snakemake --cores all results/tables/<id>.csv` makes one"
    )
    analyses: dict[str, Analysis] = Field(
        default={}, description="Analyses by name: what tables and figures of them show"
    )
    figures: dict[str, Figure] = Field(
        default={}, description="Figures by id: `snakemake --cores all results/figures/<id>.png` makes one"
    )
    evaluations: dict[str, Evaluation] = Field(
        default={},
        description="Training protocols by name, and changes to those of config/evaluations.yaml (merged key by key)",
    )
    epochs: int = Field(default=300, ge=1, description="Training epochs of evaluations that do not say")
    beta2: Decay | Literal["scaled"] = Field(default=0.999, description="AdamW's beta2 of evaluations that do not say")
    measure_every: int = Field(
        default=10, ge=1, description="Epochs between points of a learning curve, of evaluations that do not say"
    )
    slc_rounding: Literal["batches", "floor"] = Field(
        default="batches",
        description=(
            "What an SLC that is no multiple of the IPC means where an evaluation does not say; released code: floor"
        ),
    )
    labels: Labels = Field(default=Labels(), description="How views are drawn and labelled")
    threads: int = Field(
        default=2, ge=1, description="CPU threads of every job; part of the keys, because sums depend on it"
    )
