"""Raw data -> a prepared dataset: manifest, test split at evaluation size, and the training split packed or indexed.

Images that all have the input size are packed into one uint8 array. Others (`resize` is set) stay encoded: files are
indexed where they lie, parquet bytes are copied once into one blob, and training decodes them with workers.
"""

import functools
import hashlib
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from hald.datasets.decode import Pixels, decode, evaluation_image
from hald.datasets.raw import RawData, RawSplit, read_raw
from hald.datasets.spec import DatasetSpec
from hald.errors import UserError
from hald.files import publish_dir, write_json
from hald.jobs.job import Job
from hald.jobs.log import Progress
from hald.numerics.random_streams import Ints

DECODE_ALL = 4 * 10**9  # bytes of image files up to which every one is decoded once, to find broken ones early
THREADS = 2  # of the rule
END_MARKS = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}


def make(job: Job[DatasetSpec]) -> None:
    """Prepare the dataset of a job, from where its source has it."""
    prepare(job.spec, read_raw(job.spec), job.folder, job.partial, THREADS)


def prepare(spec: DatasetSpec, raw: RawData, target: Path, partial: Path, workers: int = 4) -> None:
    """Check and pack what a reader found into `target` (manifest.json and arrays)."""
    raw = select_classes(raw, spec)
    require_counts(spec, raw.classes, raw.train.labels)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    digest = hashlib.sha256()
    for name, split in (("train", raw.train), ("test", raw.test)):
        np.save(partial / f"{name}_labels.npy", split.labels)
        digest.update(split.labels.tobytes())
    storage = "packed" if spec.resize is None else _store_encoded(raw.train, partial, digest, workers)
    if storage == "packed":
        _pack(raw.train, spec, partial / "train.npy", digest, workers)
    _pack(raw.test, spec, partial / "test.npy", digest, workers)
    counts = [np.bincount(split.labels, minlength=len(raw.classes)).tolist() for split in (raw.train, raw.test)]
    manifest = {
        "format": 1,
        "name": spec.name,
        "root": spec.root,
        "classes": raw.classes,
        "size": spec.size,
        "train": {"count": len(raw.train.labels), "per_class": counts[0], "storage": storage},
        "test": {"count": len(raw.test.labels), "per_class": counts[1], "storage": "packed"},
        "digest": digest.hexdigest(),
    }
    write_json(partial / "manifest.json", manifest)
    publish_dir(partial, target, "manifest.json")


def select_classes(raw: RawData, spec: DatasetSpec) -> RawData:
    """The classes that the spec asks for, renumbered in their own order."""
    if isinstance(spec.subset, int):
        wanted = raw.classes[: spec.subset]
    else:
        unknown = sorted(set(spec.subset or ()) - set(raw.classes))
        if unknown:
            raise UserError(f"dataset '{spec.name}': subset names class '{unknown[0]}', which it does not have")
        wanted = [name for name in raw.classes if spec.subset is None or name in spec.subset]
    if len(wanted) != spec.classes:
        raise UserError(
            f"dataset '{spec.name}': {len(wanted)} classes found (first '{wanted[0] if wanted else '-'}'), the config "
            f"says {spec.classes}; correct datasets.{spec.name}.classes or the data"
        )
    if wanted == raw.classes:
        return raw
    new = np.full(len(raw.classes), -1)
    new[[raw.classes.index(name) for name in wanted]] = np.arange(len(wanted))
    return RawData(wanted, _filtered(raw.train, new), _filtered(raw.test, new))


def _filtered(split: RawSplit, new: Ints) -> RawSplit:
    labels = new[split.labels]
    kept = np.flatnonzero(labels >= 0)
    return RawSplit(labels[kept], lambda i: split.read(int(kept[i])), lambda i: split.name(int(kept[i])))


def require_counts(spec: DatasetSpec, classes: list[str], labels: Ints) -> None:
    """Refuse a dataset in which a class has fewer training images than the planned image sets need."""
    counts = np.bincount(labels, minlength=len(classes))
    short = int(counts.argmin())
    if counts[short] < max(spec.per_class, 1):
        raise UserError(
            f"dataset '{spec.name}': class '{classes[short]}' has {counts[short]} training images, the planned image "
            f"sets need {max(spec.per_class, 1)} of every class; lower ipc (or RDED's factor)"
        )


def _pack(split: RawSplit, spec: DatasetSpec, path: Path, digest: "hashlib._Hash", workers: int) -> None:
    """All images of a split at evaluation size as one (N, 3, S, S) uint8 file."""
    shape = (len(split.labels), 3, spec.size, spec.size)
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    for i, pixels in enumerate(_prepared(split, spec, workers, f"{path.stem} images")):
        array[i] = pixels.transpose(2, 0, 1)
        digest.update(array[i].tobytes())
    array.flush()


def _prepared(split: RawSplit, spec: DatasetSpec, workers: int, what: str) -> Iterator[Pixels]:
    """Decoded images at evaluation size, in order, decoded by threads in bounded chunks."""

    def one(i: int) -> Pixels:
        name = split.name(i)
        return evaluation_image(decode(split.read(i), name), spec.size, spec.resize, name)

    progress = Progress(len(split.labels), what)
    with ThreadPoolExecutor(max(workers, 1)) as pool:
        for start in range(0, len(split.labels), 1024):
            for pixels in pool.map(one, range(start, min(start + 1024, len(split.labels)))):
                yield pixels
                progress.step()


def _store_encoded(split: RawSplit, partial: Path, digest: "hashlib._Hash", workers: int) -> str:
    """Index encoded training images: paths of files, or a blob of bytes. Each one is checked."""
    items = (split.read(i) for i in range(len(split.labels)))
    progress = Progress(len(split.labels), "training images checked")
    if isinstance(split.read(0), Path):
        paths = [str(item) for item in items]
        small = sum(Path(path).stat().st_size for path in paths) < DECODE_ALL
        with ThreadPoolExecutor(max(workers, 1)) as pool:
            for path, size in zip(paths, pool.map(functools.partial(_check_file, decoded=small), paths), strict=True):
                digest.update(f"{'/'.join(Path(path).parts[-2:])}:{size}\n".encode())
                progress.step()
        write_json(partial / "train_files.json", paths)
        return "files"
    offsets = np.zeros(len(split.labels) + 1, dtype=np.int64)
    with (partial / "train.blob").open("wb") as blob:
        for i, content in enumerate(items):
            assert isinstance(content, bytes), "the plan refuses `resize` for sources that decode themselves"
            decode(content, split.name(i))
            digest.update(content)
            offsets[i + 1] = offsets[i] + blob.write(content)
            progress.step()
    np.save(partial / "train_offsets.npy", offsets)
    return "blob"


def _check_file(path: str, decoded: bool) -> int:
    """Bytes of an image file that can be decoded or, unless `decoded`, whose header and end mark are there."""
    size = Path(path).stat().st_size
    if decoded:
        decode(Path(path), path)
        return size
    try:
        with Image.open(path) as image:
            mark = END_MARKS.get(str(image.format), b"")
        with Path(path).open("rb") as handle:
            handle.seek(max(size - 4096, 0))
            whole = mark in handle.read()
    except Exception as error:
        raise UserError(f"cannot read image {path}: {error}. Replace or remove it, then run again") from error
    if not whole:
        raise UserError(f"image {path} is cut off ({size} bytes, no end mark). Replace or remove it, then run again")
    return size
