"""Batches on the device: many stored batches are rendered at once and handed out one by one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from hald.specs.run import RunSpec
from hald.views import View, normalize, render_batches

AHEAD = 512  # crops rendered at once


@dataclass(frozen=True)
class Batch:
    """Normalised inputs (B, 3, S, S) and what the loss compares with."""

    x: Tensor
    target: Tensor


def rendered(
    images: Tensor, view: View, batches: Sequence[tuple[int, range]], spec: RunSpec
) -> Iterator[tuple[Tensor, range]]:
    """Normalised inputs of each (batch number, rows of the view), in order."""
    ahead = max(AHEAD // spec.batch, 1)
    for start in range(0, len(batches), ahead):
        chunk = batches[start : start + ahead]
        rows = np.concatenate([np.arange(part.start, part.stop) for _, part in chunk])
        number = np.repeat([number for number, _ in chunk], [len(part) for _, part in chunk])
        x = normalize(render_batches(images, view, rows, number, spec.size), spec.mean, spec.std)
        first = 0
        for _, part in chunk:
            yield x[first : first + len(part)], part
            first += len(part)
