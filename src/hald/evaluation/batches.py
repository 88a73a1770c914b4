"""What a training step gets: pictures, and what the loss compares with."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Normalised inputs (B, 3, S, S) and what the loss compares with."""

    x: Tensor
    target: Tensor  # (B, C) the teacher's logits (soft stage) or class probabilities (hard stage)
    own: Tensor | None = None  # (B,) class of each image
    partner: Tensor | None = None  # (B,) class of what is mixed into it
    share: Tensor | None = None  # (B,) part of the picture that is its own

    def mixed(self, classes: int) -> Tensor:
        """(B, C) class probabilities, mixed like the pictures."""
        own, partner = (F.one_hot(self.known(label), classes) for label in (self.own, self.partner))
        share = self.known(self.share)[:, None]
        return share * own + (1 - share) * partner

    @staticmethod
    def known(value: Tensor | None) -> Tensor:
        """A part that batches of the soft pool have."""
        assert value is not None, "only batches of the soft pool know their classes"
        return value
