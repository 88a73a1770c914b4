"""Several crops in one image."""

import torch
import torch.nn.functional as F
from torch import Tensor

from hald.synthesis.ranking import Ranking


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
