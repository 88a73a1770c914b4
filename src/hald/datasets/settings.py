"""A dataset as the config describes it."""

from typing import Annotated, Literal

from pydantic import Field

from hald.settings import Count, Part, Positive, Section


class Augment(Section):
    """Random crops and flips: part of a dataset, because digits and letters have an orientation."""

    scale: tuple[Part, Part] = Field(
        default=(0.08, 1.0), description="Smallest and largest crop area, as a share of the image"
    )
    ratio: tuple[Positive, Positive] = Field(
        default=(3 / 4, 4 / 3), description="Smallest and largest aspect ratio (width / height) of a crop"
    )
    flip: float = Field(default=0.5, ge=0, le=1, description="Probability of a horizontal flip")


class Dataset(Section):
    """What a dataset of every source has."""

    source: str
    size: int = Field(ge=1, description="Side of the square network input, in pixels")
    classes: int = Field(ge=2, description="Number of classes; checked against what is found")
    mean: tuple[float, float, float] = Field(description="Channel means of the inputs its models are trained with")
    std: tuple[Positive, Positive, Positive] = Field(description="Channel standard deviations, likewise")
    root: str | None = Field(
        default=None,
        description="Folder of the raw data; `$HALD_DATA` and other variables are expanded. Not part of any key",
    )
    train: str = Field(default="train", description="Name of the training split (folder or parquet file stem)")
    test: str = Field(default="test", description="Name of the test split")
    subset: tuple[str, ...] | Count | None = Field(
        default=None,
        description=(
            "Use only these classes, by name, or only the first n in class order; `classes` is then their number"
        ),
    )
    resize: int | None = Field(
        default=None,
        ge=1,
        description=(
            "Evaluation: resize the shorter side to this, then crop the centre; empty: images already have the input "
            "size"
        ),
    )
    augment: Augment = Field(default=Augment(), description="Random crops and flips of this dataset")
    published_as: str | None = Field(
        default=None,
        description=(
            "Dataset of config/paper whose published settings it takes and whose numbers stand beside its own; empty: "
            "that of its own name"
        ),
    )
    floor: float = Field(
        default=0.0,
        ge=0,
        le=100,
        description="Lowest top-1 accuracy (percent) of a teacher that the pipeline goes on with",
    )


class LocalDataset(Dataset):
    """A dataset that is there."""

    source: Literal["sklearn_digits", "imagefolder", "tiny_imagenet", "parquet"] = Field(
        description=(
            "Reader: scikit-learn's digits, one folder per class, Tiny-ImageNet's official layout, or parquet files in "
            "the Hugging Face image layout"
        )
    )


class TorchvisionDataset(Dataset):
    """A dataset of torchvision."""

    source: Literal["torchvision"] = Field(description="Reader: torchvision's CIFAR classes")
    variant: str = Field(description="Which torchvision dataset class to read (CIFAR10, CIFAR100)")
    download: bool = Field(default=False, description="Let torchvision download the data when it is missing")


AnyDataset = Annotated[LocalDataset | TorchvisionDataset, Field(discriminator="source")]
