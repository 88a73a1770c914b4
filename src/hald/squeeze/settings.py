"""A teacher as the config describes it."""

from typing import Literal

from pydantic import Field

from hald.settings import Section
from hald.squeeze.spec import Recipe


class Teacher(Section):
    """One teacher as the config describes it."""

    arch: str = Field(
        description=(
            "Network: `small/resnet18`, `small/resnet10-w8` (3x3 stem, no pooling), `sre2l/resnet18` (torchvision's "
            "with that stem), `torchvision/<name>` or `timm/<name>`"
        )
    )
    source: Literal["train", "torchvision", "path"] = Field(
        default="train", description="Train from scratch, take torchvision's ImageNet-1K weights, or read a file"
    )
    weights: str = Field(default="IMAGENET1K_V1", description="torchvision weights to take (`source: torchvision`)")
    path: str | None = Field(
        default=None,
        description=(
            "File to read (`source: path`): safetensors, or a state dict saved by torch; variables are expanded"
        ),
    )
    recipe: Recipe = Field(default=Recipe(), description="Training recipe (`source: train`)")
    mean: tuple[float, float, float] | None = Field(
        default=None, description="Channel means it is fed with; empty: the dataset's"
    )
    std: tuple[float, float, float] | None = Field(
        default=None, description="Channel deviations it is fed with; empty: the dataset's"
    )
    seed: int = Field(default=0, ge=0, description="Seed of initialisation and data order")
