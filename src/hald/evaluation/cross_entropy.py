"""The loss of hard phases: cross-entropy against smoothed, mixed class probabilities."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from hald.evaluation.batches import Batch


@dataclass(frozen=True)
class CrossEntropy:
    """At a temperature other than the paper's 1 it is times its square, so that gradients keep their size."""

    temperature: float = 1.0

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        """Target: probabilities (B, C)."""
        return F.cross_entropy(logits / self.temperature, batch.target) * self.temperature**2


def smooth(classes: Tensor, smoothing: float) -> Tensor:
    """Class probabilities (B, C) pulled towards the uniform: (1 - smoothing) p + smoothing / C."""
    return classes * (1 - smoothing) + smoothing / classes.shape[1]
