"""What a loss of soft phases is. In a module of `hald.evaluation.losses`, `loss` makes that of an epoch."""

from typing import Protocol, cast

from torch import Tensor

from hald import registry
from hald.evaluation.batches import Batch
from hald.evaluation.spec import LossSpec


class Loss(Protocol):
    """Compares the student's logits (B, C) with what a batch carries.

    One that learns also has `after_epoch(logits, batch) -> float`: the student's own temperature in the next epoch,
    found on the last batch of this one.
    """

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        """The loss, a scalar."""


def soft_loss(spec: LossSpec, epoch: int, student: float) -> Loss:
    """The loss of one soft epoch (from 0); `student` is the student's own temperature, where the loss learns one."""
    return cast(Loss, registry.compute("hald.evaluation.losses", spec.name).loss(epoch, student, **spec.options))


def learned(loss: Loss, logits: Tensor, batch: Batch, before: float) -> float:
    """The student's own temperature after an epoch; as it was where the loss does not learn it."""
    after_epoch = getattr(loss, "after_epoch", None)
    return float(after_epoch(logits, batch)) if after_epoch else before
