"""Distilled image sets: one uint8 Zarr array with classes, losses and provenance, made unit by unit.

Images are class-major: image i belongs to class i // ipc. Every finished unit (a class) is kept, so a killed job goes
on with the next one; the finished set is moved into place in one rename.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import zarr
from numpy.typing import NDArray
from zarr.codecs import ZstdCodec

from hald.errors import UserError
from hald.files import array_digest, publish_dir, read_json, write_atomic, write_json
from hald.jobs import Progress, StopRequest, write_timing
from hald.specs.base import to_dict
from hald.specs.images import ImagesSpec

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


@dataclass(frozen=True)
class ImageSet:
    """A finished set, opened for reading."""

    folder: Path
    classes: list[str]
    ipc: int
    digest: str

    def images(self) -> NDArray[np.uint8]:
        """All images, (N, 3, S, S) uint8."""
        return np.asarray(zarr.open_group(self.folder, mode="r")["images"][:])  # type: ignore[index]


def build_set(spec: ImagesSpec, classes: list[str], places: Places, device: str, make: Callable[[int], Unit]) -> None:
    """Make every class's images with `make` (skipping those that an earlier attempt finished) and publish the set."""
    start = time.monotonic()
    progress = Progress(len(classes), "classes")
    with StopRequest() as stop:
        for label in range(len(classes)):
            path = places.partial / f"class-{label:05d}.npz"
            if not path.exists():
                stop.check()
                _save_unit(path, make(label))
            progress.step(classes[label])
    units = [np.load(places.partial / f"class-{label:05d}.npz") for label in range(len(classes))]
    images, loss = (np.concatenate([unit[name] for unit in units]) for name in ("images", "loss"))
    finished = places.partial / "set.zarr"
    shutil.rmtree(finished, ignore_errors=True)
    write_set(finished, images, loss, classes, to_dict(spec))
    write_timing(finished / "timing.json", time.monotonic() - start, device, *spec.effort)
    publish_dir(finished, places.target, "image_set.json")
    shutil.rmtree(places.partial, ignore_errors=True)


def _save_unit(path: Path, unit: Unit) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("wb") as handle:
            np.savez(handle, images=unit.images, loss=unit.loss)

    write_atomic(path, write)


def write_set(
    folder: Path, images: NDArray[np.uint8], loss: NDArray[np.float32], classes: list[str], spec: dict[str, Any]
) -> None:
    """Write a set's arrays and, last, its record image_set.json."""
    ipc = len(images) // len(classes)
    group = zarr.create_group(folder, attributes={"classes": classes, "ipc": ipc, "spec": spec})
    labels = np.repeat(np.arange(len(classes), dtype=np.int32), ipc)
    for name, data in (("images", images), ("labels", labels), ("loss", loss)):
        chunks = (min(ROWS, len(data)), *data.shape[1:])
        array = group.create_array(
            name, shape=data.shape, dtype=data.dtype, chunks=chunks, compressors=ZstdCodec(level=3, checksum=True)
        )
        array[:] = data
    record = {
        "format": 1,
        "classes": classes,
        "ipc": ipc,
        "count": len(images),
        "spec": spec,
        "digest": array_digest(images),
    }
    write_json(folder / "image_set.json", record)


def open_set(folder: Path) -> ImageSet:
    """Open a finished image set."""
    record = read_json(folder / "image_set.json")
    if record["format"] != 1:
        raise UserError(
            f"{folder} has image-set format {record['format']}, this version reads 1; remove it and run again"
        )
    return ImageSet(folder, record["classes"], record["ipc"], record["digest"])
