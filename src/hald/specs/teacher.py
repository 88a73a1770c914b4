"""What a teacher is: an architecture, where its weights come from, and the recipe that trains it."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from hald.specs.base import option


@dataclass(frozen=True)
class Recipe:
    """Training of a teacher from scratch."""

    epochs: int = option("Training epochs", 200, minimum=1)
    batch: int = option("Batch size", 128, minimum=2)
    optimizer: Literal["sgd", "adam", "adamw"] = option("Optimiser", "sgd")
    lr: float = option("Initial learning rate", 0.1, exclusiveMinimum=0)
    momentum: float = option("Momentum (sgd only)", 0.9, minimum=0, exclusiveMaximum=1)
    weight_decay: float = option("Weight decay", 0.0005, minimum=0)
    warmup: int = option("Epochs of linear warm-up, from one hundredth of the rate", 0, minimum=0)
    crop: Literal["padded", "resized"] = option(
        "Random crop of the padded image, or random resized crop with the dataset's scale and ratio", "padded"
    )
    padding: int = option("Pixels of zero padding for `crop: padded`", 4, minimum=0)


@dataclass(frozen=True)
class Teacher:
    """One teacher as the config describes it."""

    arch: str = option(
        "Network: `small/resnet18`, `small/resnet10-w8` (3x3 stem, no pooling), `sre2l/resnet18` (torchvision's with "
        "that stem), `torchvision/<name>` or `timm/<name>`"
    )
    source: Literal["train", "torchvision", "path"] = option(
        "Train from scratch, take torchvision's ImageNet-1K weights, or read a file", "train"
    )
    weights: str = option("torchvision weights to take (`source: torchvision`)", "IMAGENET1K_V1")
    path: str | None = option(
        "File to read (`source: path`): safetensors, or a state dict saved by torch; variables are expanded", None
    )
    recipe: Recipe = option("Training recipe (`source: train`)", Recipe())
    mean: tuple[float, float, float] | None = option("Channel means it is fed with; empty: the dataset's", None)
    std: tuple[float, float, float] | None = option("Channel deviations it is fed with; empty: the dataset's", None)
    seed: int = option("Seed of initialisation and data order", 0, minimum=0)


@dataclass(frozen=True)
class TeacherSpec:
    """A teacher resolved by the plan. `digest` is the SHA-256 of a `source: path` file."""

    LOCATION: ClassVar = ("path",)

    dataset: str  # key of the dataset
    arch: str
    source: str
    weights: str
    path: str | None
    digest: str | None
    recipe: Recipe
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    scale: tuple[float, float]
    ratio: tuple[float, float]
    flip: float
    size: int
    classes: int
    seed: int
    threads: int

    @property
    def effort(self) -> tuple[str, float]:
        """Kind and amount of work, for estimates: epochs of this network on this dataset."""
        return f"squeeze {self.arch}@{self.size} {self.dataset}", self.recipe.epochs if self.source == "train" else 0.1
