"""What a teacher is: an architecture, where its weights come from, and the recipe that trains it."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field


@dataclass(frozen=True)
class Recipe:
    """Training of a teacher from scratch."""

    epochs: Annotated[int, Field(ge=1, description="Training epochs")] = 200
    batch: Annotated[int, Field(ge=2, description="Batch size")] = 128
    optimizer: Annotated[Literal["sgd", "adam", "adamw"], Field(description="Optimiser")] = "sgd"
    lr: Annotated[float, Field(gt=0, description="Initial learning rate")] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1, description="Momentum (sgd only)")] = 0.9
    weight_decay: Annotated[float, Field(ge=0, description="Weight decay")] = 0.0005
    warmup: Annotated[int, Field(ge=0, description="Epochs of linear warm-up, from one hundredth of the rate")] = 0
    crop: Annotated[
        Literal["padded", "resized"],
        Field(description="Random crop of the padded image, or random resized crop with the dataset's scale and ratio"),
    ] = "padded"
    padding: Annotated[int, Field(ge=0, description="Pixels of zero padding for `crop: padded`")] = 4


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
