"""Writing image sets: one uint8 Zarr array with labels and losses and, last, the record image_set.json."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import ZstdCodec

from hald.files import write_json
from hald.synthesis.image_set import FORMAT

ROWS = 64  # images per chunk


@dataclass(frozen=True)
class Unit:
    """The images of one class: (ipc, 3, S, S) uint8 and their final losses (ipc,)."""

    images: NDArray[np.uint8]
    loss: NDArray[np.float32]


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
