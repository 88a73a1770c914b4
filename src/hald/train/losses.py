"""Losses of the evaluation: a batch carries a target, a loss compares it with the student's logits."""

from dataclasses import dataclass
from typing import Protocol

import torch.nn.functional as F
from torch import Tensor


class Loss(Protocol):
    """Student logits (B, C) and a target of the batch's kind -> scalar."""

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss."""


@dataclass(frozen=True)
class SoftLoss:
    """KL(teacher || student) at one temperature for both, mean over the batch; times T^2 where `squared`.

    The released trainer leaves T^2 out, which makes these gradients about T^2 smaller.
    """

    temperature: float
    squared: bool

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        """Target: the teacher's logits (B, C), up to a constant per row."""
        student = F.log_softmax(logits / self.temperature, dim=1)
        teacher = F.softmax(
            target / self.temperature, dim=1
        )  # probabilities: a class that was not kept has exactly none
        loss = F.kl_div(student, teacher, reduction="batchmean")
        return loss * self.temperature**2 if self.squared else loss


@dataclass(frozen=True)
class HardLoss:
    """Cross-entropy against smoothed, mixed class probabilities at temperature 1."""

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        """Target: probabilities (B, C)."""
        return F.cross_entropy(logits, target)


def smooth_targets(labels: Tensor, classes: int, smoothing: float) -> Tensor:
    """(B,) -> (B, C): 1 - smoothing + smoothing / C for the class, smoothing / C for the others."""
    return F.one_hot(labels, classes).float() * (1 - smoothing) + smoothing / classes
