"""Making image sets unit by unit: a unit is a class.

Every finished unit is kept, so a killed job goes on with the next one; the finished set is moved into place in one
rename.
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
from zarr.codecs import ZstdCodec

from hald.data.reader import PreparedDataset
from hald.files import publish_dir, write_atomic, write_json
from hald.jobs import Progress, StopRequest, write_timing
from hald.specs.base import to_dict
from hald.specs.images import ImagesSpec
from hald.synthesis.imageset import FORMAT

ROWS = 64  # images per chunk


@dataclass(frozen=True)
class Places:
    """Where an image set comes from and goes to."""

    dataset: Path
    teacher: Path | None
    target: Path
    partial: Path


@dataclass(frozen=True)
class Resources:
    """What a synthesis job may use."""

    device: torch.device
    workers: int
    floor: float


@dataclass(frozen=True)
class Unit:
    """The images of one class: (ipc, 3, S, S) uint8 and their final losses (ipc,)."""

    images: NDArray[np.uint8]
    loss: NDArray[np.float32]


def build_set(
    spec: ImagesSpec, dataset: PreparedDataset, places: Places, device: str, make: Callable[[int], Unit], **facts: Any
) -> None:
    """Make every class's images with `make` (skipping those that an earlier attempt finished) and publish the set."""
    start, made = time.monotonic(), 0
    classes = dataset.classes
    progress = Progress(len(classes), "classes")
    with StopRequest() as stop:
        for label in range(len(classes)):
            if not _unit_file(places.partial, label).exists():
                stop.check()
                _save_unit(_unit_file(places.partial, label), make(label))
                made += 1
            progress.step(classes[label])
    finished = places.partial / "set.zarr"
    shutil.rmtree(finished, ignore_errors=True)
    units = (_load_unit(_unit_file(places.partial, label)) for label in range(len(classes)))
    write_set(finished, units, classes, spec.ipc, spec.size, spec=to_dict(spec), dataset_digest=dataset.digest, **facts)
    kind, work = spec.effort
    write_timing(finished / "timing.json", time.monotonic() - start, device, kind, work * made / len(classes))
    publish_dir(finished, places.target, "image_set.json")
    shutil.rmtree(places.partial, ignore_errors=True)


def _unit_file(partial: Path, label: int) -> Path:
    return partial / f"class-{label:05d}.npz"


def _save_unit(path: Path, unit: Unit) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("wb") as handle:
            np.savez(handle, images=unit.images, loss=unit.loss)

    write_atomic(path, write)


def _load_unit(path: Path) -> Unit:
    with np.load(path) as content:
        return Unit(content["images"], content["loss"])


def write_set(folder: Path, units: Iterable[Unit], classes: list[str], ipc: int, size: int, **facts: Any) -> None:
    """Write a set's arrays class by class and, last, its record image_set.json."""
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
    record = {"format": FORMAT, "classes": classes, "ipc": ipc, "count": count, "digest": digest.hexdigest()}
    write_json(folder / "image_set.json", record | facts)
