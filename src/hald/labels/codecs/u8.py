"""Codec u8, the default: 208 steps over a row's span, a byte per class.

208 instead of 255 is about 4 % fewer bytes at C = 1000 and 1.5 times the KL.
"""

from hald.labels import affine
from hald.labels.codec import Arrays, Logits

dtypes, width, decode, half_step = affine.DTYPES, affine.width, affine.decode, affine.half_step
bytes_per_value = 0.88


def encode(logits: Logits, k: int) -> Arrays:
    """A number from 0 to 208 per class, and the row's scale."""
    return affine.encode(logits, steps=208)
