"""Adaptive schedule: soft, hard, soft, each phase until its plateau on held-out images."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hald.evaluation.batches import Batch
from hald.evaluation.loss import Loss
from hald.evaluation.schedule import Watch
from hald.evaluation.spec import AdaptiveSpec, RunSpec


@dataclass(frozen=True)
class HeldOut:
    """Distilled images that are never trained on: whole and normalised, with their classes, and as labelled crops."""

    x: Tensor
    labels: Tensor
    crops: Batch | None  # where the soft loss decides


@dataclass(frozen=True)
class Plateaus:
    """Watches held-out images for plateaus."""

    rule: AdaptiveSpec
    epochs: int
    held: HeldOut

    def watch(self, model: nn.Module, loss: Loss) -> Watch:
        """What is seen of the student after an epoch."""
        return watch(model, self.held, loss)

    def goes_on(self, starts: Sequence[int], watched: Sequence[Watch]) -> bool:
        """Whether the next epoch starts a new phase."""
        return goes_on(self.rule, self.epochs, starts, watched)


def starts(spec: RunSpec) -> list[int]:
    """First epoch of the first phase: the others are decided on the way."""
    return [0]


def held_out(spec: RunSpec) -> NDArray[np.bool_]:
    """The last few images of every class."""
    return np.arange(spec.ipc * spec.classes) % spec.ipc >= spec.ipc - _rule(spec).held_out


def watcher(spec: RunSpec, x: Tensor, labels: Tensor, crops: Callable[[], Batch]) -> Plateaus:
    """Crops are looked at only where the soft loss decides."""
    rule = _rule(spec)
    return Plateaus(rule, spec.epochs, HeldOut(x, labels, None if rule.divergence is None else crops()))


def _rule(spec: RunSpec) -> AdaptiveSpec:
    assert spec.adaptive is not None
    return spec.adaptive


def goes_on(adaptive: AdaptiveSpec, epochs: int, starts: Sequence[int], watched: Sequence[Watch]) -> bool:
    """Whether the next epoch starts a new phase, after `watched` epochs of a training of `epochs`.

    Soft to hard: accuracy grew by less than `accuracy` points per epoch over the window, or, where `divergence` is set,
    the soft loss fell by less than that share. Hard to soft: entropy changed by less than `entropy`. Every phase has
    its shortest length, the last ones by cutting the earlier ones short.
    """
    number, done = len(starts) - 1, len(watched)
    inside, window = done - starts[-1], adaptive.window
    if number == 2 or inside < adaptive.shortest:
        return False
    if done >= epochs - (2 - number) * adaptive.shortest:
        return True
    if inside <= window:
        return False
    now, before = watched[-1], watched[-1 - window]
    if number == 1:
        return abs(now[1] - before[1]) < adaptive.entropy
    if adaptive.divergence is not None:
        return before[2] - now[2] < adaptive.divergence * before[2]
    return (now[0] - before[0]) / window < adaptive.accuracy


@torch.inference_mode()
def watch(model: nn.Module, held: HeldOut, loss: Loss, batch: int = 256) -> Watch:
    """Accuracy (%) and mean normalised entropy on held-out images, soft loss on their crops (0: none), in eval mode."""
    model.eval()
    logits = _answers(model, held.x, batch)
    log_p = torch.log_softmax(logits, dim=1)
    entropy = -(log_p.exp() * log_p).sum(dim=1).mean() / math.log(logits.shape[1])
    hits = 100 * (logits.argmax(dim=1) == held.labels).float().mean()
    divergence = loss(_answers(model, held.crops.x, batch), held.crops) if held.crops else torch.zeros_like(hits)
    accuracy, share, soft = torch.stack([hits, entropy, divergence]).tolist()
    return accuracy, share, soft


def _answers(model: nn.Module, x: Tensor, batch: int) -> Tensor:
    return torch.cat([model(part) for part in x.split(batch)]).float()
