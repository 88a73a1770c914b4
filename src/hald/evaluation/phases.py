"""Where a training stands: its learning rate and its phase."""

import math
from collections.abc import Sequence

from hald.evaluation.spec import RunSpec


def learning_rate(spec: RunSpec, epoch: int) -> float:
    """lr0 / 2 (1 + cos(pi e / (E eta))): eta 1 ends at zero, eta 2 at half the rate. Phases do not restart it."""
    return spec.lr * 0.5 * (1 + math.cos(math.pi * epoch / (spec.epochs * spec.eta)))


def phase_at(starts: Sequence[int], epoch: int) -> tuple[int, int]:
    """Number of an epoch's phase, and the epoch's number inside it."""
    number = sum(start <= epoch for start in starts) - 1
    return number, epoch - starts[number]
