"""Patches as starting points of an optimisation."""

from collections.abc import Callable

import torch
from torch import Tensor

from hald.numerics.views import normalize
from hald.synthesis.mosaics import patch_images
from hald.synthesis.optimiser.teachers import Bench
from hald.synthesis.ranking import open_ranking


def patch_starts(bench: Bench) -> Callable[[Tensor, int], Tensor]:
    """A function (classes, image index) -> their patches, (n, 3, S, S) normalised."""
    spec, patches = bench.spec, bench.spec.patches
    assert patches is not None
    ranking = open_ranking(bench.made_from[patches.ranking], bench.dataset, spec.size // patches.factor, bench.device)

    def starts(labels: Tensor, image: int) -> Tensor:
        wanted = range(image, image + 1)
        found = [
            patch_images(ranking, label, patches.difficulty, patches.factor, spec.size, wanted)[0]
            for label in labels.tolist()
        ]
        return normalize(torch.cat(found) / 255, bench.mean, bench.std)

    return starts
