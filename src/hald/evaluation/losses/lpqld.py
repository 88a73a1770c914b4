"""LPQLD: KL between the teacher at an annealed temperature and the student at one calibrated after every epoch."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hald.evaluation.batches import Batch
from hald.evaluation.divergence import divergence


@dataclass(frozen=True)
class Lpqld:
    """The temperatures of an epoch."""

    teacher: float
    student: float

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        """Target: the teacher's logits (B, C), -inf where a class was not kept."""
        return divergence(logits / self.student, batch.target / self.teacher)

    def after_epoch(self, logits: Tensor, batch: Batch) -> float:
        """The student's temperature for the next epoch: the best of 0.01, 0.02 .. 1 on this batch."""
        grid = torch.linspace(0.01, 1, 100, device=logits.device)
        losses = torch.stack([replace(self, student=t)(logits.detach().float(), batch) for t in grid])
        return float(grid[losses.argmin()])


def loss(epoch: int, student: float, /, start: float, factor: float, every: int, floor: float) -> Lpqld:
    """The teacher's temperature falls every `every` epochs to the floor."""
    return Lpqld(max(floor, start * factor ** ((epoch + 1) // every)), student)
