"""Accuracy on a test split."""

import torch
from torch import Tensor, nn

from hald.data.reader import Split
from hald.views import normalize


@torch.inference_mode()
def accuracy(
    model: nn.Module,
    split: Split,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    device: torch.device,
    batch: int = 256,
) -> tuple[float, float]:
    """Top-1 and top-5 accuracy in percent, network in eval mode, one host synchronisation in all."""
    pixels = split.pixels
    assert pixels is not None, "test splits are packed"
    labels = torch.from_numpy(split.labels).to(device)
    model.eval()
    hits = torch.zeros(2, dtype=torch.int64, device=device)
    for start in range(0, len(split), batch):
        images = torch.from_numpy(pixels[start : start + batch].copy()).to(device, non_blocking=True)
        logits = model(normalize(images.to(torch.float32).div_(255), mean, std))
        hits += _hits(logits, labels[start : start + batch])
    top1, top5 = (100.0 * hits / len(split)).tolist()
    return top1, top5


def _hits(logits: Tensor, labels: Tensor) -> Tensor:
    """(2,) how many labels are the first, and among the first five."""
    best = logits.topk(min(5, logits.shape[1]), dim=1).indices == labels[:, None]
    return torch.stack([best[:, 0].sum(), best.sum()])
