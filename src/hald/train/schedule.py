"""Where a training stands: learning rate, stage, and when the adaptive schedule goes on to the next stage."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hald.specs.run import AdaptiveSpec, RunSpec

Watch = tuple[float, float]  # held-out accuracy (%) and entropy (share of ln C) after an epoch


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

    Soft to hard: accuracy grew by less than `accuracy` points per epoch over the window. Hard to soft: entropy changed
    by less than `entropy`. Every stage has its shortest length, the last ones by cutting the earlier ones short.
    """
    number, done = len(starts) - 1, len(watched)
    inside, window = done - starts[-1], adaptive.window
    if number == 2 or inside < adaptive.shortest:
        return False
    if done >= epochs - (2 - number) * adaptive.shortest:
        return True
    if inside <= window:
        return False
    (accuracy, entropy), (before, entropy_before) = watched[-1], watched[-1 - window]
    if number == 0:
        return (accuracy - before) / window < adaptive.accuracy
    return abs(entropy - entropy_before) < adaptive.entropy


@torch.inference_mode()
def watch(model: nn.Module, x: Tensor, labels: Tensor, batch: int = 256) -> Watch:
    """Accuracy (%) and mean normalised entropy of the student on held-out distilled images, in eval mode."""
    model.eval()
    logits = torch.cat([model(x[i : i + batch]) for i in range(0, len(x), batch)])
    log_p = torch.log_softmax(logits.float(), dim=1)
    entropy = -(log_p.exp() * log_p).sum(dim=1).mean() / math.log(logits.shape[1])
    hits = 100 * (logits.argmax(dim=1) == labels).float().mean()
    accuracy, share = torch.stack([hits, entropy]).tolist()
    return accuracy, share
