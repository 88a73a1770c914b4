"""Codec f16: half-precision logits."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from hald.labels.codec import Arrays, Logits
from hald.labels.half_precision import half_step

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["bytes_per_value", "decode", "dtypes", "encode", "half_step", "width"]
dtypes = {"q": "float16"}
bytes_per_value = 1.8


def width(classes: int, k: int) -> int:
    """A number per class."""
    return classes


def encode(logits: Logits, k: int) -> Arrays:
    """Centred, so that large offsets cost no precision."""
    return {"q": (logits - logits.mean(axis=1, keepdims=True)).astype(np.float16)}


def decode(rows: "Mapping[str, Tensor]", classes: int) -> "Tensor":
    """Logits (n, C) around the row's mean."""
    return rows["q"].float()
