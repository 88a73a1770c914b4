"""What a teacher says about an image set: the share it classifies as meant, and how alike a class's images are."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hald.numerics.views import normalize
from hald.same_origin import require_same_data
from hald.squeeze.teacher import load_teacher
from hald.synthesis.image_set import ImageSet

BATCH = 256


@torch.inference_mode()
def grade(images: ImageSet, folder: Path, floor: float, device: torch.device) -> dict[str, Any]:
    """Share (percent) of the set that a teacher classifies as meant, and the mean cosine within classes."""
    model, record = load_teacher(folder, images.classes, floor, device)
    require_same_data(record["dataset_digest"], f"teacher {folder}", images.dataset_digest, str(images.folder))
    hits = torch.zeros((), dtype=torch.int64, device=device)
    cosines = []
    for label in range(len(images.classes)):
        pixels = torch.from_numpy(images.of_class(label)).to(device)
        parts = [penultimate(model, normalize(p / 255, record["mean"], record["std"])) for p in pixels.split(BATCH)]
        logits, features = (torch.cat(part) for part in zip(*parts, strict=True))
        hits += (logits.argmax(dim=1) == label).sum()
        cosines.append(mean_cosine(features))
    diversity = round(float(torch.stack(cosines).mean()), 6) if images.ipc > 1 else None
    return {
        "arch": record["arch"],
        "sha256": record["sha256"],
        "classified": round(100 * int(hits) / (len(images.classes) * images.ipc), 4),
        "diversity": diversity,
    }


def penultimate(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (n, C) and what the last linear layer is fed with (n, D)."""
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    seen: list[Tensor] = []
    handle = last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        logits: Tensor = model(x)
    finally:
        handle.remove()
    return logits.float(), seen[0].flatten(1).float()


def mean_cosine(features: Tensor) -> Tensor:
    """Mean cosine over all pairs of different rows of (n, D); lower is more diverse; 0 for a single row.

    The sum over pairs of unit vectors is (|sum of them|^2 - n) / 2.
    """
    unit = torch.nn.functional.normalize(features.double(), dim=1)
    n = len(unit)
    return (unit.sum(dim=0).square().sum() - unit.square().sum()) / max(n * (n - 1), 1)
