"""Pictures of many stored batches, rendered at once and handed out one by one."""

from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor

from hald.evaluation.spec import RunSpec
from hald.numerics.views import View, normalize, render_batches

AHEAD = 512  # crops rendered at once


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
