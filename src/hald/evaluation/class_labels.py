"""Class labels of batches of the soft pool, for losses that use them beside the teacher's."""

import torch.nn.functional as F
from torch import Tensor

from hald.evaluation.batches import Batch


def own_classes(batch: Batch, classes: int) -> Tensor:
    """(B, C) each picture's own class."""
    return F.one_hot(_known(batch.own), classes)


def mixed_classes(batch: Batch, classes: int) -> Tensor:
    """(B, C) class probabilities, mixed like the pictures."""
    partner, share = F.one_hot(_known(batch.partner), classes), _known(batch.share)[:, None]
    return share * own_classes(batch, classes) + (1 - share) * partner


def _known(value: Tensor | None) -> Tensor:
    assert value is not None, "only batches of the soft pool know their classes"
    return value
