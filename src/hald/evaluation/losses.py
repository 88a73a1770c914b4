"""Losses of the evaluation: a batch carries its targets, a loss compares them with the student's logits.

`KL`, `Joint`, `Gift` and `Lpqld` are for soft stages, `CrossEntropy` for hard ones. The loop knows none of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from hald.errors import UserError
from hald.evaluation.batches import Batch
from hald.evaluation.spec import LossSpec


class Loss(Protocol):
    """Student logits (B, C) and their batch -> scalar."""

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        """The loss."""


def soft_loss(spec: LossSpec, epoch: int, temperature: float) -> Loss:
    """The loss of one soft epoch; `temperature` is the student's own, which only LPQLD has."""
    if spec.name == "lpqld":
        return Lpqld.at(epoch, temperature, **spec.options)
    return SOFT[spec.name](**spec.options)


@dataclass(frozen=True)
class KL:
    """KL(teacher || student) at one temperature for both, mean over the batch; times T^2 where `squared`.

    The released trainer leaves T^2 out, which makes these gradients about T^2 smaller.
    """

    temperature: float
    squared: bool

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        """Target: the teacher's logits (B, C), up to a constant per row."""
        loss = _divergence(logits / self.temperature, batch.target / self.temperature)
        return loss * self.temperature**2 if self.squared else loss


def _divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """Batch-mean KL of two tempered logit tables; a teacher's class that was not kept (-inf) has exactly none."""
    return F.kl_div(F.log_softmax(student, dim=1), F.softmax(teacher, dim=1), reduction="batchmean")


@dataclass(frozen=True)
class Joint:
    """Joint objective: KL plus `weight` times the cross-entropy with the smoothed, mixed classes of the same batch."""

    temperature: float
    squared: bool
    weight: float
    smoothing: float

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        """Target: the teacher's logits (B, C)."""
        hard = smooth(batch.mixed(logits.shape[1]), self.smoothing)
        return KL(self.temperature, self.squared)(logits, batch) + self.weight * F.cross_entropy(logits, hard)


@dataclass(frozen=True)
class Gift:
    """GIFT: 1 - cosine(student logits, normalised teacher logits + weight x normalised label).

    The label has 0.9 on the hard class and 0.1 spread over the others: of the image itself, as GIFT has it, or mixed.
    Stored logits are centred per row (what a constant would add is not in a store).
    """

    weight: float
    mixed: bool

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        """Target: the teacher's logits (B, C)."""
        classes = logits.shape[1]
        hard = batch.mixed(classes) if self.mixed else F.one_hot(batch.known(batch.own), classes).to(logits.dtype)
        rest = 0.1 / (classes - 1)
        label = hard * (0.9 - rest) + rest
        teacher = batch.target - batch.target.mean(dim=1, keepdim=True)
        target = F.normalize(teacher, dim=1) + self.weight * F.normalize(label, dim=1)
        return 1 - F.cosine_similarity(logits, target, dim=1).mean()


@dataclass(frozen=True)
class Lpqld:
    """KL between the teacher at an annealed temperature and the student at one calibrated after every epoch."""

    teacher: float
    student: float

    @classmethod
    def at(cls, epoch: int, student: float, start: float, factor: float, every: int, floor: float) -> "Lpqld":
        """The loss of a training epoch (from 0): the teacher's temperature falls every `every` epochs to the floor."""
        return cls(max(floor, start * factor ** ((epoch + 1) // every)), student)

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        """Target: the teacher's logits (B, C), -inf where a class was not kept."""
        return _divergence(logits / self.student, batch.target / self.teacher)

    def calibrated(self, logits: Tensor, batch: Batch) -> float:
        """The student's temperature for the next epoch: the best of 0.01, 0.02 .. 1 on this batch."""
        grid = torch.linspace(0.01, 1, 100, device=logits.device)
        losses = torch.stack([replace(self, student=t)(logits.detach().float(), batch) for t in grid])
        return float(grid[losses.argmin()])


@dataclass(frozen=True)
class CrossEntropy:
    """Cross-entropy against smoothed, mixed class probabilities: the hard stage.

    At a temperature other than the paper's 1 it is times its square, so that gradients keep their size.
    """

    temperature: float = 1.0

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        """Target: probabilities (B, C)."""
        return F.cross_entropy(logits / self.temperature, batch.target) * self.temperature**2


def temperature_of(logits: Tensor, confidence: float) -> float:
    """The temperature from 1 to 100 at which the largest probability of (n, C) logits is `confidence` on average."""

    def mean(temperature: float) -> float:
        return float(F.softmax(logits / temperature, dim=1).amax(dim=1).mean())

    low, high = 1.0, 100.0  # the mean falls as the temperature rises
    if not mean(high) <= confidence <= mean(low):
        raise UserError(
            f"hard_temperature: matched: the stored labels' largest probability is {mean(low):.3f} on average, and "
            f"{mean(high):.3f} at temperature 100; the smoothed class labels' {confidence:.3f} does not lie between. "
            f"Change `smoothing`, or give hard_temperature a number"
        )
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if mean(middle) > confidence else (low, middle)
    return round(high, 4)


def smooth(classes: Tensor, smoothing: float) -> Tensor:
    """Class probabilities (B, C) pulled towards the uniform: (1 - smoothing) p + smoothing / C."""
    return classes * (1 - smoothing) + smoothing / classes.shape[1]


SOFT: dict[str, Callable[..., Loss]] = {"kl": KL, "joint": Joint, "gift": Gift}
