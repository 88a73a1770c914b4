"""Codec u4: 15 steps over a row's span."""

from hald.labels import affine
from hald.labels.codec import Arrays, Logits

dtypes, width, decode, half_step = affine.DTYPES, affine.width, affine.decode, affine.half_step
bytes_per_value = 0.4


def encode(logits: Logits, k: int) -> Arrays:
    """A number from 0 to 15 per class, and the row's scale."""
    return affine.encode(logits, steps=15)
