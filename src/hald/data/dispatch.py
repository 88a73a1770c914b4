"""Readers by the name that the config uses."""

from collections.abc import Callable

from hald.data.raw import RawData
from hald.data.sources import cifar, digits, imagefolder, parquet, tiny_imagenet
from hald.specs.dataset import DatasetSpec

SOURCES: dict[str, Callable[[DatasetSpec], RawData]] = {
    "sklearn_digits": digits.read,
    "torchvision": cifar.read,
    "imagefolder": imagefolder.read,
    "tiny_imagenet": tiny_imagenet.read,
    "parquet": parquet.read,
}
