"""What readers of raw data give: classes in order and two splits of undecoded images."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hald.datasets.decode import Pixels
from hald.datasets.spec import DatasetSpec
from hald.errors import UserError
from hald.jobs.job import named
from hald.numerics.random_streams import Ints

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff"})


@dataclass(frozen=True)
class RawSplit:
    """Undecoded images of a split, read one by one."""

    labels: Ints
    read: Callable[[int], Pixels | bytes | Path]  # (H, W, 3) pixels, or an encoded image in memory or in a file
    name: Callable[[int], str]  # what to call image i in messages


@dataclass(frozen=True)
class RawData:
    """What a reader found."""

    classes: list[str]
    train: RawSplit
    test: RawSplit


def read_raw(spec: DatasetSpec) -> RawData:
    """What a dataset's source finds: each is a module of hald.datasets.sources."""
    raw: RawData = named(f"hald.datasets.sources.{spec.source}:read")(spec)
    return raw


def require_root(spec: DatasetSpec) -> Path:
    """The folder of the raw data, or a message that says how to set it."""
    how = f"set datasets.{spec.name}.root in config/config.yaml, or the variable it uses (e.g. `export HALD_DATA=...`)"
    if not spec.root:
        raise UserError(f"dataset '{spec.name}' ({spec.source}) has no root folder; {how}")
    if "$" in spec.root:
        raise UserError(f"dataset '{spec.name}': root is {spec.root}, and that variable is not set; {how}")
    if not Path(spec.root).is_dir() and not (spec.source == "torchvision" and spec.download):
        raise UserError(f"dataset '{spec.name}': folder {spec.root} does not exist; {how}")
    return Path(spec.root)


def class_folders(folder: Path, spec: DatasetSpec) -> dict[str, Path]:
    """The folders below a split, by name."""
    if not folder.is_dir():
        raise UserError(f"dataset '{spec.name}': {folder} does not exist; expected one folder per class in it")
    return {path.name: path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")}


def image_files(folder: Path) -> list[Path]:
    """Image files of a folder, sorted."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in EXTENSIONS)


def files_split(items: list[tuple[Path, int]]) -> RawSplit:
    """A split of (file, label) pairs."""
    paths = [path for path, _ in items]
    return RawSplit(np.array([label for _, label in items], dtype=np.int64), paths.__getitem__, lambda i: str(paths[i]))
