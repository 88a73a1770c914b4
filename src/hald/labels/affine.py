"""Steps of one length between a row's smallest and largest logit: what u8, u4 and u2 share.

Stored bytes follow the entropy of q, which zstd reaches at any level and chunk size, so that only the number of steps
changes the size, and small numbers need no packing.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from hald.labels.codec import Arrays, Logits

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = {"q": "uint8", "scale": "float32"}


def width(classes: int, k: int) -> int:
    """A number per class."""
    return classes


def encode(logits: Logits, steps: int) -> Arrays:
    """A small number per class: q * scale + row minimum, within scale / 2."""
    low = logits.min(axis=1, keepdims=True)
    span = logits.max(axis=1, keepdims=True) - low
    scale = np.maximum(span / steps, np.finfo(np.float32).tiny).astype(np.float32)
    return {"q": np.rint((logits - low) / scale).astype(np.uint8), "scale": scale[:, 0]}


def decode(rows: "Mapping[str, Tensor]", classes: int) -> "Tensor":
    """Logits (n, C) above the row's smallest one."""
    return rows["q"].float() * rows["scale"][:, None]


def half_step(rows: "Mapping[str, Tensor]") -> "Tensor":
    """Half the distance of two steps, (n, 1)."""
    return rows["scale"][:, None] / 2
