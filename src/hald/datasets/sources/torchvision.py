"""torchvision's CIFAR classes."""

import numpy as np

from hald.datasets.raw import RawData, RawSplit, require_root
from hald.datasets.spec import DatasetSpec
from hald.errors import UserError


def read(spec: DatasetSpec) -> RawData:
    """CIFAR-10 or CIFAR-100 as torchvision stores them."""
    import torchvision.datasets

    root = require_root(spec)
    kinds = {"CIFAR10": torchvision.datasets.CIFAR10, "CIFAR100": torchvision.datasets.CIFAR100}
    if spec.variant not in kinds:
        raise UserError(f"dataset '{spec.name}': variant is {spec.variant!r}, known are {', '.join(kinds)}")
    try:
        parts = [kinds[spec.variant](str(root), train=train, download=spec.download) for train in (True, False)]
    except (RuntimeError, OSError) as error:
        raise UserError(
            f"dataset '{spec.name}': torchvision's {spec.variant} is not complete in {root} and could not be fetched "
            f"({error}). On a machine without network, copy the extracted archive there, or use the parquet source"
        ) from error
    train, test = (
        RawSplit(np.array(part.targets, dtype=np.int64), part.data.__getitem__, lambda i: f"{spec.variant} {i}")
        for part in parts
    )
    return RawData(list(parts[0].classes), train, test)
