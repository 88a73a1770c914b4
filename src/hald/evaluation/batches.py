"""Batches on the device: many stored batches are rendered at once and handed out one by one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from hald.evaluation.spec import RunSpec
from hald.numerics.views import View, normalize, render_batches

AHEAD = 512  # crops rendered at once


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


def rendered(
    images: Tensor, view: View, batches: Sequence[tuple[int, range]], spec: RunSpec
) -> Iterator[tuple[Tensor, range]]:
    """Normalised inputs of each (batch number, rows of the view), in order."""
    ahead = max(AHEAD // spec.batch, 1)
    for start in range(0, len(batches), ahead):
        chunk = batches[start : start + ahead]
        rows = np.concatenate([np.arange(part.start, part.stop) for _, part in chunk])
        number = np.repeat([number for number, _ in chunk], [len(part) for _, part in chunk])
        x = normalize(render_batches(images, view, rows, number, spec.size), spec.mean, spec.std)
        first = 0
        for _, part in chunk:
            yield x[first : first + len(part)], part
            first += len(part)
