"""Joint objective: KL plus the cross-entropy with the smoothed, mixed classes of the same batch."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from hald.evaluation.batches import Batch
from hald.evaluation.class_labels import mixed_classes
from hald.evaluation.cross_entropy import smooth
from hald.evaluation.divergence import tempered


@dataclass(frozen=True)
class Joint:
    """KL as in `kl`, and `weight` times the cross-entropy."""

    temperature: float
    squared: bool
    weight: float
    smoothing: float

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        """Target: the teacher's logits (B, C)."""
        soft = tempered(logits, batch.target, self.temperature, self.squared)
        hard = smooth(mixed_classes(batch, logits.shape[1]), self.smoothing)
        return soft + self.weight * F.cross_entropy(logits, hard)


def loss(epoch: int, student: float, /, temperature: float, squared: bool, weight: float, smoothing: float) -> Joint:
    """The same in every epoch."""
    return Joint(temperature, squared, weight, smoothing)
