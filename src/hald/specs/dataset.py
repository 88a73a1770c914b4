"""What a dataset is: where it comes from, its size, its statistics and the augmentation that suits it."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from hald.specs.base import option


@dataclass(frozen=True)
class Augment:
    """Random crops and flips: part of a dataset, because digits and letters have an orientation."""

    scale: tuple[float, float] = option("Smallest and largest crop area, as a share of the image", (0.08, 1.0))
    ratio: tuple[float, float] = option("Smallest and largest aspect ratio (width / height) of a crop", (3 / 4, 4 / 3))
    flip: float = option("Probability of a horizontal flip", 0.5, minimum=0, maximum=1)


@dataclass(frozen=True)
class Dataset:
    """One dataset as the config describes it."""

    source: Literal["sklearn_digits", "torchvision", "imagefolder", "tiny_imagenet", "parquet"] = option(
        "Reader: scikit-learn's digits, torchvision's CIFAR classes, one folder per class, Tiny-ImageNet's official "
        "layout, or parquet files in the Hugging Face image layout"
    )
    size: int = option("Side of the square network input, in pixels", minimum=1)
    classes: int = option("Number of classes; checked against what is found", minimum=2)
    mean: tuple[float, float, float] = option("Channel means of the inputs its models are trained with")
    std: tuple[float, float, float] = option("Channel standard deviations, likewise", exclusiveMinimum=0)
    root: str | None = option(
        "Folder of the raw data; `$HALD_DATA` and other variables are expanded. Not part of any key", None
    )
    variant: str | None = option("Which torchvision dataset class to read (CIFAR10, CIFAR100)", None)
    download: bool = option("Let torchvision download the data when it is missing", False)
    train: str = option("Name of the training split (folder or parquet file stem)", "train")
    test: str = option("Name of the test split", "test")
    subset: tuple[str, ...] | int | None = option(
        "Use only these classes, by name, or only the first n in class order", None
    )
    resize: int | None = option(
        "Evaluation: resize the shorter side to this, then crop the centre; empty: images already have the input size",
        None,
        minimum=1,
    )
    augment: Augment = option("Random crops and flips of this dataset", Augment())
    floor: float = option(
        "Lowest top-1 accuracy (percent) of a teacher that the pipeline goes on with", 0.0, minimum=0, maximum=100
    )


@dataclass(frozen=True)
class DatasetSpec:
    """A dataset resolved by the plan: what it is and, outside its key, where it lies and how much it must hold."""

    LOCATION: ClassVar = ("root", "download", "per_class")

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
