"""Several crops in one image: mosaics, and patches as images or as starting points of an optimisation."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from hald.datasets.reader import PreparedDataset
from hald.numerics.views import normalize
from hald.synthesis.ranking import Ranking, Statistics, open_ranking
from hald.synthesis.spec import UnitsSpec


def mosaic(crops: Tensor, ipc: int, factor: int, size: int) -> Tensor:
    """(ipc * factor^2, 3, s, s) ranked crops -> (ipc, 3, size, size): cell k of image j is crop k * ipc + j."""
    out = crops.new_zeros(ipc, 3, size, size)
    edges = [i * (size // factor) + min(i, size % factor) for i in range(factor + 1)]  # first cells take what is left
    for k in range(factor**2):
        (top, bottom), (left, right) = (edges[n : n + 2] for n in divmod(k, factor))
        cell = crops[k * ipc : (k + 1) * ipc]
        out[:, :, top:bottom, left:right] = F.interpolate(cell, size=(bottom - top, right - left), mode="nearest")
    return out


def patch_images(
    ranking: Ranking, label: int, difficulty: str, factor: int, size: int, images: range
) -> tuple[Tensor, Tensor]:
    """Patches `images` of a class, (n, 3, size, size) uint8, and their losses (n,): image k has crops k * factor^2 on.

    Unlike RDED's mosaic, an image does not depend on how many there are: fifty patches begin with the ten of ten.
    """
    cells = factor**2
    crops, loss = ranking.patches(label, difficulty, images.start * cells, len(images) * cells)
    order = torch.arange(len(crops)).view(len(images), cells).t().reshape(-1)  # mosaic() wants cell by cell
    losses = torch.from_numpy(loss).view(len(images), cells).mean(dim=1)
    return mosaic(crops[order.to(crops.device)], len(images), factor, size), losses


def patch_starts(
    spec: UnitsSpec,
    made_from: Mapping[str, Path],
    dataset: PreparedDataset,
    statistics: Statistics,
    device: torch.device,
) -> Callable[[Tensor, int], Tensor]:
    """A function (classes, image index) -> their patches, (n, 3, S, S) normalised with (mean, std)."""
    patches = spec.patches
    assert patches is not None
    ranking = open_ranking(made_from[patches.ranking], dataset, spec.size // patches.factor, device)

    def starts(labels: Tensor, image: int) -> Tensor:
        wanted = range(image, image + 1)
        found = [
            patch_images(ranking, label, patches.difficulty, patches.factor, spec.size, wanted)[0]
            for label in labels.tolist()
        ]
        return normalize(torch.cat(found) / 255, *statistics)

    return starts
