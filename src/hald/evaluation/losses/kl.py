"""KL(teacher || student) at one temperature for both, mean over the batch: the paper's soft loss."""

from dataclasses import dataclass

from torch import Tensor

from hald.evaluation.batches import Batch
from hald.evaluation.divergence import tempered


@dataclass(frozen=True)
class KL:
    """Times T^2 where `squared`."""

    temperature: float
    squared: bool

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        """Target: the teacher's logits (B, C), up to a constant per row."""
        return tempered(logits, batch.target, self.temperature, self.squared)


def loss(epoch: int, student: float, /, temperature: float, squared: bool) -> KL:
    """The same in every epoch."""
    return KL(temperature, squared)
