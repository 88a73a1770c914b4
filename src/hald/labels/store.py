"""The soft-label store: one Zarr group that holds images, teachers, views and labels, and grows view by view.

A store is made in one rename and never changes but by new views. A view is whole when its marker is there: the marker
is written last and carries the sizes and hashes of the view's files. Readers use marked views only; the writer refuses
to touch one. Array lengths are fixed and large, because only written files take space; markers say how many views
there are.
"""

import errno
import os
import shutil
import uuid
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import ZstdCodec
from zarr.codecs.numcodecs import PCodec
from zarr.errors import ZarrUserWarning

from hald.errors import UserError
from hald.files import array_digest, file_digest, fsync_dir, link_tree, publish_dir, read_json, write_json
from hald.labels.claim import Claim
from hald.labels.codec import CODECS, Arrays, Codec, Logits
from hald.provenance import require_same_classes
from hald.views import View

FORMAT = 1
MAX_VIEWS = 65536
# The Rust pipeline reads twice as fast; only zarr-python's writes a file in one rename.
READER, WRITER = "zarrs.ZarrsCodecPipeline", "zarr.core.codec_pipeline.BatchedCodecPipeline"
GEOMETRY = ("image", "box", "flip", "partner", "lam", "cut")

# pcodec is no part of the Zarr 3 specification; only codec i16 uses it, and it says so in its documentation
warnings.filterwarnings("ignore", category=ZarrUserWarning, message="Numcodecs codecs are not in the Zarr")


@dataclass(frozen=True)
class Header:
    """What a store is about; kept as the group's attributes."""

    format: int
    key: str
    code: str  # digest of the code that made it
    classes: list[str]
    count: int  # images
    batch: int
    size: int
    codec: str
    top_k: int
    images_digest: str
    dataset_digest: str  # of the real data that images and teachers come from
    spec: dict[str, Any]
    view_settings: dict[str, Any]
    teachers: list[dict[str, Any]]
    versions: dict[str, str]

    @property
    def batches(self) -> int:
        """Stored batches per view."""
        return -(-self.count // self.batch)


def create_store(folder: Path, header: Header, images: Path, teachers: list[Path]) -> None:
    """Make an empty store with its images (the array of an image set) and teachers (folders) in it, in one step."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    try:
        group = zarr.create_group(building, attributes=asdict(header))
        for name, entry in _layout(header).items():
            serializer = {"serializer": PCodec(level=8)} if entry.dtype == "int16" else {}
            group.create_array(
                name,
                shape=entry.shape,
                dtype=entry.dtype,
                chunks=entry.chunk,
                shards=entry.shard,
                fill_value=np.nan if entry.dtype.startswith("float") else 0,
                compressors=ZstdCodec(level=3, checksum=True),
                **serializer,  # type: ignore[arg-type]
            )
        link_tree(images / "images", building / "images")
        for number, teacher in enumerate(teachers):
            link_tree(teacher, building / "teachers" / str(number))
        publish_dir(building, folder, "zarr.json")
    finally:
        shutil.rmtree(building, ignore_errors=True)


@dataclass(frozen=True)
class _Entry:
    """One array: a view is exactly one file of it."""

    shape: tuple[int, ...]
    dtype: str
    chunk: tuple[int, ...]
    shard: tuple[int, ...] | None = None


def _layout(header: Header) -> dict[str, _Entry]:
    """All arrays by name. Wide ones are sharded: a reader may fetch some hundred rows of a view at a time."""
    n, batches = header.count, header.batches
    rows = header.batch * max(1, min(384 // header.batch, batches))
    shard = -(-n // rows) * rows
    codec = CODECS[header.codec]
    width = codec.width(len(header.classes), header.top_k)
    entries = {
        name: _Entry((MAX_VIEWS, n), dtype, (1, n))
        if name == "scale"
        else _Entry((MAX_VIEWS, n, width), dtype, (1, rows, width), (1, shard, width))
        for name, dtype in codec.dtypes.items()
    }
    return entries | {
        "image": _Entry((MAX_VIEWS, n), "uint32", (1, n)),
        "flip": _Entry((MAX_VIEWS, n), "uint8", (1, n)),
        "partner": _Entry((MAX_VIEWS, n), "uint16", (1, n)),
        "box": _Entry((MAX_VIEWS, n, 4), "uint16", (1, n, 4)),
        "lam": _Entry((MAX_VIEWS, batches), "float64", (1, batches)),
        "cut": _Entry((MAX_VIEWS, batches, 4), "uint16", (1, batches, 4)),
    }


class LabelStore:
    """A store opened for reading and, view by view, for growing."""

    def __init__(self, folder: Path) -> None:
        if not (folder / "zarr.json").is_file():
            raise UserError(f"there is no label store at {folder}")
        self.folder = folder
        self.group = zarr.open_group(folder, mode="r+" if os.access(folder, os.W_OK) else "r")
        attributes = dict(self.group.attrs)
        found = attributes.get("format")
        if "codec" not in attributes:
            raise UserError(f"{folder} is a Zarr group, but no label store")
        if found != FORMAT:
            newer = isinstance(found, int) and found > FORMAT
            remedy = "update this package" if newer else "remove it and run again"
            raise UserError(f"label store {folder} has format {found}, this version reads {FORMAT}; {remedy}")
        self.header = Header(**attributes)  # type: ignore[arg-type]
        self._arrays: dict[tuple[str, str], zarr.Array[Any]] = {}

    @property
    def codec(self) -> Codec:
        """How labels are stored here."""
        return CODECS[self.header.codec]

    def array(self, name: str, pipeline: str = READER) -> "zarr.Array[Any]":
        """One of the store's arrays, opened once for reading and once for writing."""
        if (name, pipeline) not in self._arrays:
            with zarr.config.set({"codec_pipeline.path": pipeline}):
                array = self.group[name]
                assert isinstance(array, zarr.Array)
                self._arrays[name, pipeline] = array.with_config({"write_empty_chunks": True})
        return self._arrays[name, pipeline]

    def images(self) -> NDArray[np.uint8]:
        """The distilled images, (N, 3, S, S) uint8, checked against the header's digest."""
        try:
            images = np.asarray(self.array("images")[:], dtype=np.uint8)
        except Exception as error:  # a codec's checksum failed, or files are gone
            raise UserError(f"label store {self.folder}: its images are damaged ({error}); remove the store") from error
        if array_digest(images) != self.header.images_digest:
            raise UserError(
                f"the images in label store {self.folder} are not those its labels were made for; remove the store"
            )
        return images

    def teacher(self, number: int) -> Path:
        """Folder of one of the store's teachers, whose weights are those that labelled."""
        folder = self.folder / "teachers" / str(number)
        weights = folder / "teacher.safetensors"
        if not weights.is_file() or file_digest(weights) != self.header.teachers[number]["sha256"]:
            state = "are not those that made its labels" if weights.is_file() else "are gone"
            raise UserError(f"label store {self.folder}: the weights of teacher {number} {state}; it cannot be grown")
        return folder

    def marker(self, view: int) -> Path:
        """Completion marker of a view."""
        return self.folder / "views" / f"{view:05d}.json"

    def has(self, view: int) -> bool:
        """Whether a view is whole."""
        return self.marker(view).is_file()

    def views(self) -> list[int]:
        """The whole views, in order."""
        return sorted(int(path.stem) for path in (self.folder / "views").glob("?????.json"))

    def claim(self, view: int) -> Claim:
        """The right to write a view, if nobody else has it."""
        return Claim(self.folder / "claims" / f"{view:05d}.json")

    def write(self, view: int, drawn: View, logits: Logits) -> None:
        """Add one view, whose claim the caller holds: arrays first, marker last. A marked view is never touched."""
        if self.has(view):
            raise UserError(
                f"view {view} of {self.folder} is complete and is not written again; remove the store to start over"
            )
        if not np.isfinite(logits).all():
            row = int(np.flatnonzero(~np.isfinite(logits).all(axis=1))[0])
            raise UserError(
                f"the teacher's logits for crop {row} of view {view} are not finite; is the teacher broken?"
            )
        content: Arrays = self.codec.encode(logits, self.header.top_k)
        content |= {name: getattr(drawn, name) for name in GEOMETRY}
        try:
            for name, data in content.items():
                shutil.rmtree(self.file(name, view).parent, ignore_errors=True)  # what a killed writer left
                self.array(name, WRITER)[view] = data
            files = {name: self._sealed(name, view) for name in content}
            write_json(self.marker(view), {"format": FORMAT, "view": view, "files": files})
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise UserError(
                    f"the disk of {self.folder} is full: view {view} was not kept, the views before it are safe. "
                    f"Free some space and run again"
                ) from error
            raise

    def _sealed(self, name: str, view: int) -> dict[str, Any]:
        """Flush a view's file of one array to the disk; its size and hash."""
        path = self.file(name, view)
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
        fsync_dir(path.parent)
        return {"bytes": path.stat().st_size, "sha256": file_digest(path)}

    def file(self, name: str, view: int) -> Path:
        """The one file that holds an array's part of a view."""
        return self.folder / name / "c" / "/".join([str(view)] + ["0"] * (self.array(name).ndim - 1))

    def marked_files(self, view: int) -> dict[str, dict[str, Any]]:
        """Sizes and hashes that a view's marker states, by array."""
        if not self.has(view):
            raise UserError(
                f"view {view} of label store {self.folder} is not complete; run `snakemake {self.marker(view)}`"
            )
        return dict(read_json(self.marker(view))["files"])

    def check(self, view: int) -> None:
        """Refuse a view that is not marked, or whose files do not have the marked sizes."""
        for name, entry in self.marked_files(view).items():
            path = self.file(name, view)
            size = path.stat().st_size if path.is_file() else -1
            if size != entry["bytes"]:
                state = "is missing" if size < 0 else f"has {size} bytes instead of {entry['bytes']}"
                raise UserError(f"label store {self.folder}: array {name} of view {view} {state}; {self.remedy(view)}")

    def remedy(self, view: int) -> str:
        """What to type to have a bad view computed anew."""
        return f"remove {self.marker(view)} and run again to compute that view anew"

    def read(self, names: Iterable[str], views: int) -> Arrays:
        """The first `views` views of some arrays; every view must be whole."""
        for view in range(views):
            self.check(view)
        return {name: self._read(name, views) for name in names}

    def _read(self, name: str, views: int) -> NDArray[Any]:
        try:
            return np.asarray(self.array(name)[:views])
        except Exception as error:  # a codec's checksum failed
            raise UserError(
                f"label store {self.folder}: array {name} is damaged ({error}); "
                f"`hald labels verify {self.folder}` says where"
            ) from error

    def rows(self, view: int) -> Iterator[tuple[str, NDArray[Any]]]:
        """The label arrays of one whole view."""
        self.check(view)
        for name in self.codec.dtypes:
            yield name, np.asarray(self.array(name)[view])

    def drawn(self, view: int) -> View:
        """The integers of a stored view."""
        self.check(view)
        part = {name: np.asarray(self.array(name)[view]) for name in GEOMETRY}
        whole = {name: part[name].astype(np.int64) for name in ("image", "box", "partner", "cut")}
        return View(flip=part["flip"] > 0, lam=part["lam"], mix=self.header.view_settings["mix"], **whole)

    def require_classes(self, classes: list[str], name: str) -> None:
        """Refuse to go on with other classes than the labels were made for."""
        remedy = "Give your dataset another name in the config, so that it gets labels of its own."
        require_same_classes(self.header.classes, f"label store {self.folder}", classes, name, remedy)
