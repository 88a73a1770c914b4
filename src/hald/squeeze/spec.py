"""What a teacher is: an architecture, where its weights come from, and the recipe that trains it."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from hald.plain import option


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
class WeightsSpec:
    """Weights of torchvision that have to be downloaded."""

    arch: str
    weights: str

    @property
    def name(self) -> str:
        """Name of their file, below a folder for each network."""
        return f"{self.arch}/{self.weights}"


@dataclass(frozen=True)
class TeacherSpec:
    """A teacher resolved by the plan. `digest` is the SHA-256 of a `source: path` file."""

    NOT_IDENTITY: ClassVar = ("path",)

    dataset: str  # key of the dataset
    arch: str
    source: str
    weights: str | None  # source: torchvision
    path: str | None
    digest: str | None
    recipe: Recipe | None  # source: train
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
        return f"squeeze {self.arch}@{self.size} {self.dataset}", self.recipe.epochs if self.recipe else 0.1
