"""Prepared datasets as the stages read them."""

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hald.datasets.decode import Pixels, decode, image_shape
from hald.errors import UserError
from hald.files import read_json
from hald.numerics.random_streams import Ints


@dataclass(frozen=True)
class Split:
    """One split. `pixels` is (N, 3, S, S) uint8 on disk, or None where images are decoded on demand."""

    folder: Path
    name: str
    storage: str  # packed, files or blob
    labels: Ints

    def __len__(self) -> int:
        return len(self.labels)

    @functools.cached_property
    def pixels(self) -> NDArray[np.uint8] | None:
        """All images, memory-mapped."""
        if self.storage != "packed":
            return None
        return np.asanyarray(np.load(self.folder / f"{self.name}.npy", mmap_mode="r"), dtype=np.uint8)

    @functools.cached_property
    def _files(self) -> list[str]:
        return list(read_json(self.folder / f"{self.name}_files.json"))

    @functools.cached_property
    def _blob(self) -> tuple[NDArray[np.uint8], Ints]:
        blob = np.memmap(self.folder / f"{self.name}.blob", dtype=np.uint8, mode="r")
        return blob, np.load(self.folder / f"{self.name}_offsets.npy")

    def read(self, i: int) -> Pixels:
        """Image i at its own size, (H, W, 3) uint8."""
        if self.pixels is not None:
            image: Pixels = self.pixels[i].transpose(1, 2, 0)
            return image
        if self.storage == "files":
            return decode(Path(self._files[i]), self._files[i])
        blob, offsets = self._blob
        return decode(blob[offsets[i] : offsets[i + 1]].tobytes(), f"{self.name} image {i}")

    def shape(self, i: int) -> tuple[int, int]:
        """Height and width of image i; of an encoded one only the header is read."""
        if self.pixels is not None:
            return int(self.pixels.shape[2]), int(self.pixels.shape[3])
        if self.storage == "files":
            return image_shape(Path(self._files[i]), self._files[i])
        blob, offsets = self._blob
        return image_shape(blob[offsets[i] : offsets[i + 1]].tobytes(), f"{self.name} image {i}")

    def warm(self) -> None:
        """Open indices once, before worker processes are forked."""
        _ = self.pixels if self.storage == "packed" else self._files if self.storage == "files" else self._blob

    def of_class(self, label: int) -> Ints:
        """Indices of the images of one class, in file order."""
        return np.flatnonzero(self.labels == label)


@dataclass(frozen=True)
class PreparedDataset:
    """A dataset that `hald.datasets.prepare` has written."""

    name: str
    classes: list[str]
    size: int
    digest: str
    train: Split
    test: Split


def open_dataset(folder: Path) -> PreparedDataset:
    """Open a prepared dataset."""
    manifest = read_json(folder / "manifest.json")
    if manifest["format"] != 1:
        raise UserError(
            f"{folder} has dataset format {manifest['format']}, this version reads 1; remove it and run again"
        )
    splits = [
        Split(folder, name, manifest[name]["storage"], np.load(folder / f"{name}_labels.npy"))
        for name in ("train", "test")
    ]
    return PreparedDataset(manifest["name"], manifest["classes"], manifest["size"], manifest["digest"], *splits)
