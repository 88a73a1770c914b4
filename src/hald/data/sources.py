"""Readers of raw data: one function per layout, each giving classes in order and two splits of undecoded images."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from hald.data.decode import Pixels
from hald.draws import Ints
from hald.errors import UserError
from hald.specs.dataset import DatasetSpec

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


def sklearn_digits(spec: DatasetSpec) -> RawData:
    """1,797 handwritten digits of 8 x 8 pixels, enlarged; the last 500 (other writers) are the test split."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    grey = np.rint(bunch.images * (255 / 16)).astype(np.uint8)

    def pixels(i: int) -> Pixels:
        image = Image.fromarray(grey[i]).resize((spec.size, spec.size), Image.Resampling.BILINEAR)
        return np.asarray(image.convert("RGB"))

    targets = bunch.target.astype(np.int64)
    border = len(targets) - 500
    train = RawSplit(targets[:border], pixels, lambda i: f"digit {i}")
    test = RawSplit(targets[border:], lambda i: pixels(border + i), lambda i: f"digit {border + i}")
    return RawData([str(name) for name in bunch.target_names], train, test)


def torchvision_cifar(spec: DatasetSpec) -> RawData:
    """CIFAR-10 or CIFAR-100 as torchvision stores them."""
    import torchvision.datasets

    root = require_root(spec)
    kinds = {"CIFAR10": torchvision.datasets.CIFAR10, "CIFAR100": torchvision.datasets.CIFAR100}
    if spec.variant not in kinds:
        raise UserError(f"dataset '{spec.name}': variant is {spec.variant!r}, known are {', '.join(kinds)}")
    try:
        parts = [kinds[spec.variant](str(root), train=train, download=spec.download) for train in (True, False)]
    except (RuntimeError, OSError) as error:
        raise UserError(
            f"dataset '{spec.name}': torchvision's {spec.variant} is not complete in {root} and could not be fetched "
            f"({error}). On a machine without network, copy the extracted archive there, or use the parquet source"
        ) from error
    train, test = (
        RawSplit(np.array(part.targets, dtype=np.int64), part.data.__getitem__, lambda i: f"{spec.variant} {i}")
        for part in parts
    )
    return RawData(list(parts[0].classes), train, test)


def imagefolder(spec: DatasetSpec) -> RawData:
    """One folder per class below each split; classes in sorted order."""
    root = require_root(spec)
    found = {split: _class_folders(root / split, spec) for split in (spec.train, spec.test)}
    classes = sorted(found[spec.train])
    different = sorted(set(classes) ^ set(found[spec.test]))
    if different:
        raise UserError(
            f"dataset '{spec.name}': class folder '{different[0]}' is in only one of {root / spec.train} and "
            f"{root / spec.test} ({len(different)} such); the two splits need the same classes"
        )
    train, test = (
        _files_split([(path, classes.index(name)) for name in classes for path in _image_files(found[split][name])])
        for split in (spec.train, spec.test)
    )
    return RawData(classes, train, test)


def _class_folders(folder: Path, spec: DatasetSpec) -> dict[str, Path]:
    if not folder.is_dir():
        raise UserError(f"dataset '{spec.name}': {folder} does not exist; expected one folder per class in it")
    return {path.name: path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")}


def _image_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in EXTENSIONS)


def _files_split(items: list[tuple[Path, int]]) -> RawSplit:
    paths = [path for path, _ in items]
    return RawSplit(np.array([label for _, label in items], dtype=np.int64), paths.__getitem__, lambda i: str(paths[i]))


def tiny_imagenet(spec: DatasetSpec) -> RawData:
    """Tiny-ImageNet's official layout: train/<wnid>/images, val/images with val_annotations.txt; sorted WNIDs."""
    root = require_root(spec)
    folders = _class_folders(root / "train", spec)
    classes = sorted(folders)
    annotations = root / "val" / "val_annotations.txt"
    if not annotations.is_file():
        raise UserError(f"dataset '{spec.name}': {annotations} is missing; it holds the labels of the test split")
    rows = [line.split("\t") for line in annotations.read_text().splitlines() if line]
    unknown = sorted({row[1] for row in rows} - set(classes))
    if unknown:
        raise UserError(
            f"dataset '{spec.name}': {annotations} names class '{unknown[0]}', which has no training folder"
        )
    train = [(path, i) for i, name in enumerate(classes) for path in _image_files(folders[name] / "images")]
    test = [(root / "val" / "images" / row[0], classes.index(row[1])) for row in rows]
    return RawData(classes, _files_split(train), _files_split(test))


def parquet(spec: DatasetSpec) -> RawData:
    """Parquet in the Hugging Face image layout: struct image{bytes, path}, integer label, names in the metadata."""
    import pyarrow.parquet as pq

    root = require_root(spec)
    splits, names = [], []
    for split in (spec.train, spec.test):
        files = sorted(
            [*root.glob(f"{split}.parquet"), *root.glob(f"{split}-*.parquet"), *root.glob(f"data/{split}-*.parquet")]
        )
        if not files:
            raise UserError(f"dataset '{spec.name}': no {split}.parquet or {split}-*.parquet in {root}")
        tables = [pq.read_table(file, memory_map=True) for file in files]
        image, label, classes = _huggingface_columns(tables[0].schema.metadata or {}, files[0])
        names.append(classes)
        column = [chunk.field("bytes") for table in tables for chunk in table[image].chunks]
        labels = np.concatenate([table[label].to_numpy() for table in tables]).astype(np.int64)
        splits.append(_chunked_split(column, labels, f"{root.name}/{split}"))
    if names[0] != names[1]:
        raise UserError(f"dataset '{spec.name}': the class names of {spec.train} and {spec.test} differ in {root}")
    return RawData(names[0], *splits)


def _huggingface_columns(metadata: dict[bytes, bytes], file: Path) -> tuple[str, str, list[str]]:
    """Image column, label column and class names from the schema's `huggingface` metadata."""
    features: dict[str, Any] = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    image = next((name for name, kind in features.items() if kind.get("_type") == "Image"), None)
    label = next((name for name, kind in features.items() if kind.get("_type") == "ClassLabel"), None)
    if image is None or label is None:
        raise UserError(
            f"{file}: the schema metadata has no `huggingface` entry with an Image and a ClassLabel feature "
            f"(found features: {sorted(features) or 'none'}); write it with the datasets library's to_parquet"
        )
    return image, label, list(features[label]["names"])


def _chunked_split(chunks: list[Any], labels: Ints, name: str) -> RawSplit:
    starts = np.cumsum([0] + [len(chunk) for chunk in chunks])

    def read(i: int) -> bytes:
        chunk = int(np.searchsorted(starts, i, side="right")) - 1
        content: bytes = chunks[chunk][i - int(starts[chunk])].as_py()
        return content

    return RawSplit(labels, read, lambda i: f"{name} row {i}")


SOURCES: dict[str, Callable[[DatasetSpec], RawData]] = {
    "sklearn_digits": sklearn_digits,
    "torchvision": torchvision_cifar,
    "imagefolder": imagefolder,
    "tiny_imagenet": tiny_imagenet,
    "parquet": parquet,
}
