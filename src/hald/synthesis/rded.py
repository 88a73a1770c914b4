"""RDED: the most recognisable crops of real images, put together without optimisation.

Per class: `mipc` images, `num_crop` square crops each; a crop's score is the teacher's cross-entropy for the true class
on the crop centred in an empty canvas. The best crop of each image, then the IPC x factor^2 best images; image j is a
factor x factor mosaic whose cell k holds ranked crop k * IPC + j.

Unlike the released code, the choice is seeded, pixels are rounded rather than truncated, no JPEG is written, and crops
are scored as the 8-bit images that they become.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hald.data.crops import CropRequest, Crops
from hald.data.reader import open_dataset
from hald.draws import permutation, uniforms
from hald.provenance import require_same_data
from hald.specs.images import ImagesSpec
from hald.synthesis.build import Places, Resources, Unit, build_set
from hald.teacher import load_teacher
from hald.views import CROP_WIDTH, normalize

BATCH = 256


def synthesize(spec: ImagesSpec, places: Places, resources: Resources) -> None:
    """Make the whole image set."""
    dataset = open_dataset(places.dataset)
    assert places.teacher is not None, "RDED scores with a teacher"
    teacher, record = load_teacher(places.teacher, dataset.classes, resources.floor, resources.device)
    require_same_data(
        record["dataset_digest"], f"teacher {places.teacher}", dataset.digest, f"dataset {places.dataset}"
    )
    side = spec.size // spec.factor
    crops = Crops(dataset.train, side, spec.crop_scale, (1.0, 1.0), resources.workers, resources.device)

    def make(label: int) -> Unit:
        candidates, loss = _score_class(spec, crops, label, teacher, (record["mean"], record["std"]))
        best, best_loss = select(candidates, loss, spec.ipc * spec.factor**2, spec.num_crop)
        cells = best_loss.view(spec.factor**2, spec.ipc)
        return Unit(mosaic(best, spec.ipc, spec.factor, spec.size).cpu().numpy(), cells.mean(dim=0).cpu().numpy())

    used = [min(spec.mipc, len(dataset.train.of_class(label))) for label in range(len(dataset.classes))]
    build_set(spec, dataset, places, resources.device.type, make, mipc_used=used)


def _score_class(
    spec: ImagesSpec,
    crops: Crops,
    label: int,
    teacher: nn.Module,
    statistics: tuple[tuple[float, ...], tuple[float, ...]],
) -> tuple[Tensor, Tensor]:
    """Crops of one class, (mipc * num_crop, 3, side, side) uint8, an image's crops side by side, and their losses."""
    members = crops.split.of_class(label)
    chosen = members[permutation("rded-images", spec.seed, label, len(members))[: spec.mipc]]
    index = np.repeat(chosen, spec.num_crop)
    draws = uniforms("rded-crops", spec.seed, label, len(index), CROP_WIDTH)
    requests = [
        CropRequest(index[i : i + BATCH], draws[i : i + BATCH], np.zeros(len(index[i : i + BATCH]), dtype=bool))
        for i in range(0, len(index), BATCH)
    ]
    kept, losses = [], []
    for pixels in crops.batches(requests):
        kept.append(pixels.mul(255).round_().to(torch.uint8))
        losses.append(score(teacher, kept[-1], label, spec.size, statistics))
    return torch.cat(kept), torch.cat(losses)


@torch.inference_mode()
def score(
    teacher: nn.Module, crops: Tensor, label: int, size: int, statistics: tuple[tuple[float, ...], tuple[float, ...]]
) -> Tensor:
    """Teacher's cross-entropy for `label` on 8-bit crops centred in a canvas of normalised zeros: (n,)."""
    x = normalize(crops.to(torch.float32).div(255), *statistics)
    before = (size - crops.shape[-1]) // 2
    after = size - crops.shape[-1] - before
    logits = teacher(F.pad(x, (before, after, before, after)))
    return F.cross_entropy(logits, torch.full((len(crops),), label, device=crops.device), reduction="none")


def select(crops: Tensor, loss: Tensor, count: int, num_crop: int) -> tuple[Tensor, Tensor]:
    """The best crop of each image, then the `count` best of those, lowest loss first (ties: the earlier image)."""
    per_image = loss.view(-1, num_crop)
    best_loss, which = per_image.min(dim=1)
    rank = torch.argsort(best_loss, stable=True)[:count]
    return crops[rank * num_crop + which[rank]], best_loss[rank]


def mosaic(crops: Tensor, ipc: int, factor: int, size: int) -> Tensor:
    """(ipc * factor^2, 3, s, s) ranked crops -> (ipc, 3, size, size): cell k of image j is crop k * ipc + j."""
    out = crops.new_zeros(ipc, 3, size, size)
    edges = [i * (size // factor) + min(i, size % factor) for i in range(factor + 1)]  # first cells take what is left
    for k in range(factor**2):
        (top, bottom), (left, right) = (edges[n : n + 2] for n in divmod(k, factor))
        cell = crops[k * ipc : (k + 1) * ipc]
        out[:, :, top:bottom, left:right] = F.interpolate(cell, size=(bottom - top, right - left), mode="nearest")
    return out
