"""What a dataset is: where it comes from, its size, its statistics and the augmentation that suits it."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class DatasetSpec:
    """A dataset resolved by the plan: what it is and, outside its key, where it lies and how much it must hold."""

    NOT_IDENTITY: ClassVar = ("root", "download", "per_class")

    name: str
    source: str
    variant: str | None
    train: str
    test: str
    subset: tuple[str, ...] | int | None
    classes: int
    size: int
    resize: int | None
    root: str | None
    download: bool
    per_class: int  # training images that the image sets of the plan ask of every class
