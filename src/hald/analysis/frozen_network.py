"""A finished network as the analyses ask it: crops in, logits out, in eval mode and without gradients."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hald.analysis.random_crops import Crops
from hald.numerics.random_streams import Ints
from hald.numerics.views import normalize

Pixels = Tensor | NDArray[np.uint8]  # (N, 3, H, W) uint8, on the device or (large test splits) on disk
FORWARD = 512  # crops per forward pass


@dataclass(frozen=True)
class Probe:
    """A network, the statistics its inputs are normalised with, and the side of its inputs in pixels."""

    model: nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.model.parameters()).device

    @torch.inference_mode()
    def logits(self, pixels: Tensor) -> Tensor:
        """(n, 3, size, size) in [0, 1] -> (n, C) float64 logits, network in eval mode."""
        self.model.eval()
        x = normalize(pixels, self.mean, self.std)
        return torch.cat([self.model(part).double() for part in x.split(FORWARD)])

    def crop_logits(self, images: Pixels, rows: Ints, crops: Crops) -> Tensor:
        """(n, C) float64 logits of crop i of image rows[i]; `crops` has one crop for each of `rows`."""
        return self.logits(crops.cut(pick(images, rows, self.device), self.size))


def pick(images: Pixels, rows: Ints, device: torch.device) -> Tensor:
    """Some images on the device."""
    if isinstance(images, Tensor):
        return images[torch.from_numpy(rows).to(images.device)].to(device)
    return torch.from_numpy(np.ascontiguousarray(images[rows])).to(device)


def chunks(rows: Ints, size: int) -> Iterator[Ints]:
    """Consecutive parts of at most `size` rows."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def source_size(images: Pixels) -> tuple[int, int]:
    """Height and width of the images."""
    return int(images.shape[2]), int(images.shape[3])
