"""Where a training stands: learning rate, stage, and when the adaptive schedule goes on to the next stage."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hald.evaluation.batches import Batch
from hald.evaluation.losses import Loss
from hald.evaluation.spec import AdaptiveSpec, RunSpec

Watch = tuple[float, float, float]  # held-out accuracy (%), entropy (share of ln C), soft loss after an epoch


@dataclass(frozen=True)
class HeldOut:
    """Distilled images that are never trained on: whole and normalised, with their classes, and as labelled crops."""

    x: Tensor
    labels: Tensor
    crops: Batch | None  # where the soft loss decides


def learning_rate(spec: RunSpec, epoch: int) -> float:
    """lr0 / 2 (1 + cos(pi e / (E eta))): eta 1 ends at zero, eta 2 at half the rate. Stages do not restart it."""
    return spec.lr * 0.5 * (1 + math.cos(math.pi * epoch / (spec.epochs * spec.eta)))


def fixed_starts(spec: RunSpec) -> list[int]:
    """First epoch of every stage; of the first one alone where the rest is decided on the way."""
    lengths = [stage.epochs for stage in spec.stages]
    known = [length for length in itertools.takewhile(lambda length: length is not None, lengths) if length]
    return [0, *itertools.accumulate(known)][: max(len(known), 1)]


def stage_at(starts: Sequence[int], epoch: int) -> tuple[int, int]:
    """Stage number of an epoch, and the epoch's number inside it."""
    number = sum(start <= epoch for start in starts) - 1
    return number, epoch - starts[number]


def goes_on(adaptive: AdaptiveSpec, epochs: int, starts: Sequence[int], watched: Sequence[Watch]) -> bool:
    """Whether the next epoch starts a new stage, after `watched` epochs of a training of `epochs`.

    Soft to hard: accuracy grew by less than `accuracy` points per epoch over the window, or, where `divergence` is set,
    the soft loss fell by less than that share. Hard to soft: entropy changed by less than `entropy`. Every stage has
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
