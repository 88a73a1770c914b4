"""Distilled image sets as they are read: one uint8 Zarr array with classes, losses and provenance.

Images are class-major: image i belongs to class i // ipc.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from hald.errors import UserError
from hald.files import read_json

FORMAT = 1


@dataclass(frozen=True)
class ImageSet:
    """A finished set, opened for reading."""

    folder: Path
    classes: list[str]
    ipc: int
    digest: str  # of the pixels
    dataset_digest: str  # of the real data it was made from

    def images(self) -> NDArray[np.uint8]:
        """All images, (N, 3, S, S) uint8."""
        return np.asarray(zarr.open_group(self.folder, mode="r")["images"][:])  # type: ignore[index]

    def of_class(self, label: int) -> NDArray[np.uint8]:
        """The images of one class, (ipc, 3, S, S) uint8."""
        array = zarr.open_group(self.folder, mode="r")["images"]
        return np.asarray(array[label * self.ipc : (label + 1) * self.ipc])  # type: ignore[index]

    def losses(self) -> NDArray[np.float32]:
        """Final loss of every image, (N,); NaN where nothing was optimised or ranked."""
        return np.asarray(zarr.open_group(self.folder, mode="r")["loss"][:])  # type: ignore[index]

    def record(self) -> dict[str, Any]:
        """All that image_set.json says."""
        return dict(read_json(self.folder / "image_set.json"))


def open_set(folder: Path) -> ImageSet:
    """Open a finished image set."""
    if not (folder / "image_set.json").is_file():
        raise UserError(f"there is no finished image set at {folder}; `hald images ls` lists those of the config")
    record = read_json(folder / "image_set.json")
    if record["format"] != FORMAT:
        raise UserError(f"{folder} has image-set format {record['format']}, this version reads {FORMAT}; remove it")
    return ImageSet(folder, record["classes"], record["ipc"], record["digest"], record["dataset_digest"])
