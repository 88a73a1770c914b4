"""Writing image sets: one uint8 Zarr array with labels and losses, what its teachers say about it, the record last.

`assemble` makes a whole set of the images of each class: written, graded, with a preview, put in place.
"""

import hashlib
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import zarr
from numpy.typing import NDArray
from torch import Tensor, nn
from zarr.codecs import ZstdCodec

from hald.datasets.reader import PreparedDataset
from hald.files import publish_dir, write_json
from hald.jobs.job import Job
from hald.jobs.log import Progress, log
from hald.jobs.signals import StopRequest
from hald.numerics.views import normalize
from hald.plain import to_dict
from hald.same_origin import require_same_data
from hald.squeeze.teacher import load_teacher
from hald.synthesis.image_set import FORMAT, ImageSet
from hald.synthesis.preview import draw_sheet
from hald.synthesis.spec import ImagesSpec

ROWS = 64  # images per chunk
BATCH = 256  # images that a teacher grades at a time


@dataclass(frozen=True)
class Unit:
    """The images of one class: (ipc, 3, S, S) uint8 and their final losses (ipc,)."""

    images: NDArray[np.uint8]
    loss: NDArray[np.float32]


def assemble(
    job: Job[ImagesSpec],
    dataset: PreparedDataset,
    device: torch.device,
    make: Callable[[int], Unit],
    **facts: Any,
) -> None:
    """Make every class's images with `make` and publish the set."""
    start, classes, spec = time.monotonic(), dataset.classes, job.spec
    finished = job.partial / "set.zarr"
    shutil.rmtree(finished, ignore_errors=True)
    progress = Progress(len(classes), "classes")
    with StopRequest() as stop:

        def made(label: int) -> Unit:
            stop.check()
            progress.step(classes[label])
            return make(label)

        digest = write_arrays(finished, map(made, range(len(classes))), classes, spec.ipc, spec.size)
    images = ImageSet(finished, classes, spec.ipc, digest, dataset.digest)
    grades = [grade(images, job.made_from[key], job.floor, device) for key in spec.teachers]
    for entry in grades:
        log.info("%(arch)s classifies %(classified).1f %% of the set as meant", entry)
    if grades:
        facts |= {"classified": grades[0]["classified"], "diversity": grades[0]["diversity"], "teachers": grades}
    draw_sheet(images.folder, images.ipc).save(finished / "preview.png")
    facts |= {"method": spec.method, "spec": to_dict(spec), "dataset_digest": dataset.digest}
    write_record(finished, classes, spec.ipc, digest, **facts)
    job.note_time(start, device.type, folder=finished)
    publish_dir(finished, job.folder, "image_set.json")
    shutil.rmtree(job.partial, ignore_errors=True)


def write_set(folder: Path, units: Iterable[Unit], classes: list[str], ipc: int, size: int, **facts: Any) -> None:
    """Write a whole set: arrays, then the record with `facts` in it."""
    write_record(folder, classes, ipc, write_arrays(folder, units, classes, ipc, size), **facts)


def write_arrays(folder: Path, units: Iterable[Unit], classes: list[str], ipc: int, size: int) -> str:
    """Write a set's arrays class by class; the digest of its pixels."""
    count = len(classes) * ipc
    group = zarr.create_group(folder, attributes={"classes": classes, "ipc": ipc})
    codec = ZstdCodec(level=3, checksum=True)
    rows = min(ROWS, ipc)  # a chunk never crosses classes
    images = group.create_array(
        "images", shape=(count, 3, size, size), dtype="uint8", chunks=(rows, 3, size, size), compressors=codec
    )
    loss = group.create_array("loss", shape=(count,), dtype="float32", chunks=(count,), compressors=codec)
    labels = group.create_array("labels", shape=(count,), dtype="int32", chunks=(count,), compressors=codec)
    labels[:] = np.repeat(np.arange(len(classes), dtype=np.int32), ipc)
    losses = []
    digest = hashlib.sha256(f"{(count, 3, size, size)}uint8".encode())
    for label, unit in enumerate(units):
        images[label * ipc : (label + 1) * ipc] = unit.images
        digest.update(np.ascontiguousarray(unit.images).tobytes())
        losses.append(unit.loss)
    loss[:] = np.concatenate(losses)
    return digest.hexdigest()


def write_record(folder: Path, classes: list[str], ipc: int, digest: str, **facts: Any) -> None:
    """Write image_set.json, which says that the set is whole."""
    record = {"format": FORMAT, "classes": classes, "ipc": ipc, "count": len(classes) * ipc, "digest": digest}
    write_json(folder / "image_set.json", record | facts)


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
