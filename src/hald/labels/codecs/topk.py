"""Codec topk: the k largest logits in half precision, and their classes, for LPQLD's class selection."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from hald.labels.codec import Arrays, Logits
from hald.labels.half_precision import half_step

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["bytes_per_value", "decode", "dtypes", "encode", "half_step", "width"]
dtypes = {"q": "float16", "index": "uint16"}
bytes_per_value = 4.0


def width(classes: int, k: int) -> int:
    """A number per kept logit."""
    return min(k, classes)


def encode(logits: Logits, k: int) -> Arrays:
    """The k largest logits and their classes; largest first."""
    index = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    values = np.take_along_axis(logits, index, axis=1)
    return {"q": (values - values[:, :1]).astype(np.float16), "index": index.astype(np.uint16)}


def decode(rows: "Mapping[str, Tensor]", classes: int) -> "Tensor":
    """Classes that were not kept get minus infinity: softmax renormalises over the kept ones (MR-k)."""
    q = rows["q"].float()
    return q.new_full((len(q), classes), -math.inf).scatter_(1, rows["index"].long(), q)
