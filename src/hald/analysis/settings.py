"""An analysis as the config describes it."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from hald.registry import names
from hald.settings import Count, Distinct, Section

if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[tuple(names("hald.analysis.kinds"))]


class Analysis(Section):
    """One analysis: what is looked at (all combinations of its lists), and how much of it."""

    kind: Kind = Field(description="What is measured (docs/analyses.md)")
    images: tuple[str, ...] = Field(min_length=1, description="Image sets, by name")
    ipc: Distinct[Count] = Field(min_length=1, description="Images per class")
    slc: int | None = Field(
        default=None, ge=1, description="Soft labels per class of students or labels; empty: one per image"
    )
    student: str | None = Field(default=None, description="Student, by name; empty: the experiment's first")
    evaluations: tuple[str, ...] = Field(
        default=("soft_only", "hald"), description="Evaluations whose students are looked at, by name"
    )
    teachers: tuple[str, ...] = Field(default=(), description="Teachers that are asked (lvsd); empty: the experiment's")
    reference: str | None = Field(
        default=None, description="Evaluation of the reference student (reference_consistency)"
    )
    reference_slc: int | None = Field(default=None, ge=1, description="Its soft labels per class")
    samples: int | None = Field(
        default=None,
        ge=1,
        description=(
            "How many: images (lvsd, drift), pairs per class (crop_consistency), classes (embedding); empty: the "
            "paper's"
        ),
    )
    crops: int | None = Field(
        default=None, ge=2, description="Crops per image (lvsd, the consistencies, drift); empty: the paper's"
    )
    epochs: int = Field(default=100, ge=1, description="Epochs of the training whose gradients are compared")
    resolution: int = Field(default=21, ge=3, description="Points along each side of a landscape, an odd number")
    plane: Literal["pca", "umap"] = Field(
        default="pca",
        description="How features are put into the plane (embedding); umap needs umap-learn: `pip install umap-learn`",
    )
    seed: int = Field(default=42, ge=0, description="Seed of all draws")
