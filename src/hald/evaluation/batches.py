"""What a training step gets: pictures, and what the loss compares with."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Normalised inputs (B, 3, S, S) and what the loss compares with."""

    x: Tensor
    target: Tensor  # (B, C) the teacher's logits (soft phase) or class probabilities (hard phase)
    own: Tensor | None = None  # (B,) class of each image
    partner: Tensor | None = None  # (B,) class of what is mixed into it
    share: Tensor | None = None  # (B,) part of the picture that is its own
