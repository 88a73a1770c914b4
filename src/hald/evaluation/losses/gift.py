"""GIFT: 1 - cosine(student logits, normalised teacher logits + weight x normalised label)."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from hald.evaluation.batches import Batch
from hald.evaluation.class_labels import mixed_classes, own_classes


@dataclass(frozen=True)
class Gift:
    """The label has 0.9 on the hard class, the image's own as GIFT has it or mixed, and 0.1 spread over the others.

    Stored logits are centred per row (what a constant would add is not in a store).
    """

    weight: float
    mixed: bool

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        """Target: the teacher's logits (B, C)."""
        classes = logits.shape[1]
        hard = mixed_classes(batch, classes) if self.mixed else own_classes(batch, classes).to(logits.dtype)
        rest = 0.1 / (classes - 1)
        label = hard * (0.9 - rest) + rest
        teacher = batch.target - batch.target.mean(dim=1, keepdim=True)
        target = F.normalize(teacher, dim=1) + self.weight * F.normalize(label, dim=1)
        return 1 - F.cosine_similarity(logits, target, dim=1).mean()


def loss(epoch: int, student: float, /, weight: float, mixed: bool) -> Gift:
    """The same in every epoch."""
    return Gift(weight, mixed)
