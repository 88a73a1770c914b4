"""Accuracy on a test split."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hald.numerics.views import normalize

RESIDENT = 2 << 30  # bytes of a test split that is kept on the device


@dataclass(frozen=True)
class TestSet:
    """A test split that is decoded and moved once: `pixels` (N, 3, S, S) uint8 on the device, or on disk if large."""

    __test__ = False  # no test case for pytest

    pixels: Tensor | NDArray[np.uint8]
    labels: Tensor

    @classmethod
    def of(cls, images: NDArray[np.uint8] | None, labels: NDArray[np.int64], device: torch.device) -> "TestSet":
        """The whole of a split."""
        assert images is not None, "test splits are packed"
        pixels: Tensor | NDArray[np.uint8] = images
        if images.nbytes <= RESIDENT:
            pixels = torch.from_numpy(np.array(images)).to(device)
        return cls(pixels, torch.from_numpy(labels).to(device))

    def batch(self, start: int, stop: int) -> Tensor:
        """Images start .. stop-1 on the device."""
        part = self.pixels[start:stop]
        return part if isinstance(part, Tensor) else torch.from_numpy(part.copy()).to(self.labels.device)


@torch.inference_mode()
def accuracy(
    model: nn.Module, test: TestSet, mean: tuple[float, ...], std: tuple[float, ...], batch: int = 256
) -> tuple[float, float]:
    """Top-1 and top-5 accuracy in percent, network in eval mode, one host synchronisation in all."""
    model.eval()
    count = len(test.labels)
    hits = torch.zeros(2, dtype=torch.int64, device=test.labels.device)
    for start in range(0, count, batch):
        x = normalize(test.batch(start, start + batch).to(torch.float32).div_(255), mean, std)
        hits += _hits(model(x), test.labels[start : start + batch])
    top1, top5 = (100.0 * hits / count).tolist()
    return top1, top5


def _hits(logits: Tensor, labels: Tensor) -> Tensor:
    """(2,) how many labels are the first, and among the first five."""
    best = logits.topk(min(5, logits.shape[1]), dim=1).indices == labels[:, None]
    return torch.stack([best[:, 0].sum(), best.sum()])
