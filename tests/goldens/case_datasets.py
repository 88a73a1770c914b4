"""Prepared datasets of every source, read with NumPy and compared with PIL, torchvision and scikit-learn."""

import contextlib
import io
import itertools
import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torchvision.datasets
from bench import CLASSES, MEAN, SIZE, STD, TEST, TRAIN, Bench, Check, cases
from numpy.typing import NDArray
from PIL import Image
from torchvision.transforms import functional as tv

from chain import formula


@cases(
    {
        "sklearn_digits": ("dataset.sklearn_digits",),
        "torchvision": ("dataset.torchvision",),
        "imagefolder": ("dataset.imagefolder",),
        "imagefolder_resized": ("dataset.imagefolder",),
        "tiny_imagenet": ("dataset.tiny_imagenet",),
        "parquet": ("dataset.parquet",),
        "parquet_resized": ("dataset.parquet",),
    },
    sklearn_digits="sklearn_digits",
    torchvision="torchvision",
    imagefolder="imagefolder",
    imagefolder_resized="resized",
    tiny_imagenet="tiny_imagenet",
    parquet="parquet",
    parquet_resized="parquet_resized",
)
def dataset(bench: Bench, source: str) -> Iterator[Check]:
    """Images, classes and their order, in both splits."""
    # a folder of its own: the key of a dataset does not ask where it lies
    own = replace(bench, folder=bench.folder / f"source-{source}", kept={})
    settings, names, splits = SOURCES[source](own.folder / "raw")
    where = {"root": str(own.folder / "raw"), "mean": list(MEAN), "std": list(STD)}
    chain = own.chain(dataset=where | settings, teacher="adamw")
    with _any_checksum():
        folder = chain.only("dataset")
    manifest = json.loads((folder / "manifest.json").read_text())
    yield Check("classes", manifest["classes"], names, 0)
    for split, (images, labels) in splits.items():
        yield Check(f"classes of {split}", np.load(folder / f"{split}_labels.npy"), labels, 0)
        yield Check(f"{split} per class", manifest[split]["per_class"], np.bincount(labels).tolist(), 0)
        if (folder / f"{split}.npy").exists():
            yield Check(f"images of {split}", np.load(folder / f"{split}.npy").transpose(0, 2, 3, 1), images, 0)
        elif (folder / f"{split}_files.json").exists():
            found = [np.asarray(Image.open(path)) for path in json.loads((folder / f"{split}_files.json").read_text())]
            yield Check(f"files of {split}", np.stack(found), images, 0)
        else:
            at, blob = np.load(folder / f"{split}_offsets.npy"), (folder / f"{split}.blob").read_bytes()
            found = [np.asarray(Image.open(io.BytesIO(blob[a:b]))) for a, b in itertools.pairwise(at)]
            yield Check(f"blob of {split}", np.stack(found), images, 0)


@contextlib.contextmanager
def _any_checksum() -> Iterator[None]:
    """torchvision's checksums are those of the real files."""
    with (
        patch.object(torchvision.datasets.CIFAR10, "_check_integrity", lambda self: True),
        patch.object(torchvision.datasets.cifar, "check_integrity", lambda *_: True),
    ):
        yield


Found = tuple[dict[str, Any], list[str], dict[str, tuple[NDArray[np.uint8], list[int]]]]
COUNTS = {"train": TRAIN, "test": TEST}
LABELS = {split: [c for c in range(CLASSES) for _ in range(count)] for split, count in COUNTS.items()}


def _formulas(height: int, width: int) -> dict[str, list[NDArray[np.uint8]]]:
    """Images of both splits, class by class; not square where the sides differ."""
    side = max(height, width)
    return {
        split: [formula(c, 100 * part + i, side)[:height, :width] for c in range(CLASSES) for i in range(count)]
        for part, (split, count) in enumerate(COUNTS.items())
    }


def _evaluated(images: list[NDArray[np.uint8]], resize: int) -> NDArray[np.uint8]:
    """Resized by the shorter side, then the centre, as torchvision does it with PIL's images."""
    return np.stack([np.asarray(tv.center_crop(tv.resize(Image.fromarray(i), resize), SIZE)) for i in images])


def _digits(root: Path) -> Found:
    from sklearn.datasets import load_digits

    known = load_digits()
    images = [Image.fromarray((x * 255 / 16).round().astype(np.uint8)) for x in known.images]
    pixels = np.stack([np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BILINEAR)) for image in images])
    pixels, labels = np.repeat(pixels[..., None], 3, axis=3), known.target.tolist()
    splits = {"train": (pixels[:1297], labels[:1297]), "test": (pixels[1297:], labels[1297:])}
    return {"source": "sklearn_digits", "classes": 10}, [str(i) for i in range(10)], splits


def _folders(root: Path, resize: int | None = None) -> Found:
    images = _formulas(*((20, 26) if resize else (SIZE, SIZE)))
    names = [f"kind{label}" for label in (0, 10, 2)]  # in the order of their names, 10 comes before 2
    for split, each in images.items():
        for number, (pixels, label) in enumerate(zip(each, LABELS[split], strict=True)):
            folder = root / split / names[label]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / f"{number:03d}.png")
    (root / "train" / names[0] / "notes.txt").write_text("no image")
    test = _evaluated(images["test"], resize) if resize else np.stack(images["test"])
    splits = {"train": (np.stack(images["train"]), LABELS["train"]), "test": (test, LABELS["test"])}
    return {"source": "imagefolder"} | ({"resize": resize} if resize else {}), sorted(names), splits


def _tiny_imagenet(root: Path) -> Found:
    images, names = _formulas(SIZE, SIZE), ["n01", "n02", "n03"]
    rows = []
    for split, each in images.items():
        for number, (pixels, label) in enumerate(zip(each, LABELS[split], strict=True)):
            train = root / "train" / names[label] / "images" / f"{names[label]}_{number:02d}.png"
            file = train if split == "train" else root / "val/images" / f"val_{number:02d}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(file)
            rows += [f"{file.name}\t{names[label]}\t0\t0\t9\t9"] if split == "test" else []
    (root / "val/val_annotations.txt").write_text("\n".join(rows) + "\n")
    splits = {split: (np.stack(each), LABELS[split]) for split, each in images.items()}
    return {"source": "tiny_imagenet"}, names, splits


def _parquet(root: Path, resize: int | None = None) -> Found:
    import pyarrow as pa
    import pyarrow.parquet as pq

    images, names = _formulas(*((20, 26) if resize else (SIZE, SIZE))), ["c", "a", "b"]
    root.mkdir(parents=True)
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": names}}
    about = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    for split, each in images.items():
        shards = ((0, 7), (7, len(each))) if split == "train" else ((0, len(each)),)
        for number, (first, last) in enumerate(shards):
            column = pa.array([{"bytes": _png(pixels), "path": None} for pixels in each[first:last]])
            table = pa.table({"image": column, "label": LABELS[split][first:last]})
            name = f"{split}-{number:05d}-of-00002" if split == "train" else split
            pq.write_table(table.replace_schema_metadata(about), root / f"{name}.parquet", row_group_size=5)
    test = _evaluated(images["test"], resize) if resize else np.stack(images["test"])
    splits = {"train": (np.stack(images["train"]), LABELS["train"]), "test": (test, LABELS["test"])}
    return {"source": "parquet"} | ({"resize": resize} if resize else {}), names, splits


def _png(pixels: NDArray[np.uint8]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "png")
    return stream.getvalue()


def _cifar(root: Path) -> Found:
    """CIFAR-10's pickles, ten images in each of the six."""
    names = [f"name{i}" for i in range(10)]
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    splits: dict[str, tuple[list[Any], list[int]]] = {"train": ([], []), "test": ([], [])}
    for number, file in enumerate([f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]):
        images = [formula(i, number, 32) for i in range(10)]
        labels = [(i * 3 + number) % 10 for i in range(10)]
        rows = np.stack(images).transpose(0, 3, 1, 2).reshape(10, -1)
        (folder / file).write_bytes(pickle.dumps({"data": rows, "labels": labels}))
        split = splits["test" if file == "test_batch" else "train"]
        split[0].extend(images)
        split[1].extend(labels)
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": names}))
    settings = {"source": "torchvision", "variant": "CIFAR10", "classes": 10, "size": 32}
    return settings, names, {split: (np.stack(images), labels) for split, (images, labels) in splits.items()}


SOURCES = {
    "sklearn_digits": _digits,
    "torchvision": _cifar,
    "imagefolder": _folders,
    "resized": lambda root: _folders(root, 18),
    "tiny_imagenet": _tiny_imagenet,
    "parquet": _parquet,
    "parquet_resized": lambda root: _parquet(root, 18),
}
