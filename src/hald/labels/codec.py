"""Logits in one byte per class: a row is q * scale, and softmax does not care about the offset that is dropped."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def encode_u8(logits: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """(n, C) logits -> (n, C) uint8 and (n,) float32 scales: logits = q * scale + row minimum, within scale / 2."""
    low = logits.min(axis=1, keepdims=True)
    span = logits.max(axis=1, keepdims=True) - low
    scale = np.maximum(span / 255, np.finfo(np.float32).tiny).astype(np.float32)
    return np.rint((logits - low) / scale).astype(np.uint8), scale[:, 0]


def decode_u8(q: Tensor, scale: Tensor) -> Tensor:
    """Centred-up-to-a-constant logits (n, C) float32 from their bytes, on the device of `q`."""
    return q.to(torch.float32) * scale[:, None]
