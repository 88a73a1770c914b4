"""KL divergence of tempered logits: what most soft losses are made of."""

import torch.nn.functional as F
from torch import Tensor


def divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """Batch-mean KL of two tempered logit tables; a teacher's class that was not kept (-inf) has exactly none."""
    return F.kl_div(F.log_softmax(student, dim=1), F.softmax(teacher, dim=1), reduction="batchmean")


def tempered(student: Tensor, teacher: Tensor, temperature: float, squared: bool) -> Tensor:
    """KL(teacher || student) of logits (B, C) at one temperature for both; times T^2 where `squared`.

    The released trainer leaves T^2 out, which makes these gradients about T^2 smaller.
    """
    loss = divergence(student / temperature, teacher / temperature)
    return loss * temperature**2 if squared else loss
