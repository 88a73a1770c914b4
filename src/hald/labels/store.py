"""The soft-label store: one Zarr group that holds images, teacher, views and labels, and grows view by view.

A store is made in one rename and never changes but by new views. A view is whole when its marker is there: the marker
is written last and carries the sizes and hashes of the view's files. Readers use marked views only; the writer refuses
to touch one. Array lengths are fixed and large, because only written shards take space; markers say how many there are.
"""

import os
import shutil
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import ZstdCodec

from hald.draws import Ints
from hald.errors import UserError
from hald.files import array_digest, file_digest, fsync_dir, link_tree, publish_dir, read_json, write_json
from hald.labels.codec import encode_u8
from hald.provenance import require_same_classes
from hald.views import View

FORMAT = 1
MAX_VIEWS = 65536
Array = NDArray[Any]


@dataclass(frozen=True)
class Header:
    """What a store is about; kept as the group's attributes."""

    format: int
    classes: list[str]
    count: int  # images
    batch: int
    size: int
    codec: str
    images_digest: str
    spec: dict[str, Any]
    view_settings: dict[str, Any]
    teacher: dict[str, Any]
    versions: dict[str, str]

    @property
    def batches(self) -> int:
        """Stored batches per view."""
        return -(-self.count // self.batch)


def create_store(folder: Path, header: Header, images: Path, teacher: Path) -> None:
    """Make an empty store with its images (the array of an image set) and teacher (a folder) in it, in one step."""
    building = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    try:
        group = zarr.create_group(building, attributes=asdict(header))
        for name, (shape, dtype, chunks, shards) in _layout(header).items():
            group.create_array(
                name,
                shape=shape,
                dtype=dtype,
                chunks=chunks,
                shards=shards,
                fill_value=np.nan if name == "scale" else 0,
                compressors=ZstdCodec(level=3, checksum=True),
                config={"write_empty_chunks": True},
            )
        link_tree(images / "images", building / "images")
        link_tree(teacher, building / "teacher")
        publish_dir(building, folder, "zarr.json")
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _layout(header: Header) -> dict[str, tuple[tuple[int, ...], str, tuple[int, ...], tuple[int, ...] | None]]:
    """Array name -> shape, dtype, chunk, shard. A view is exactly one file of each array."""
    n, c, batches = header.count, len(header.classes), header.batches
    rows = header.batch * max(1, min(384 // header.batch, batches))
    shard = -(-n // rows) * rows
    return {
        "q": ((MAX_VIEWS, n, c), "uint8", (1, rows, c), (1, shard, c)),
        "scale": ((MAX_VIEWS, n), "float32", (1, n), None),
        "image": ((MAX_VIEWS, n), "uint32", (1, n), None),
        "flip": ((MAX_VIEWS, n), "uint8", (1, n), None),
        "partner": ((MAX_VIEWS, n), "uint16", (1, n), None),
        "box": ((MAX_VIEWS, n, 4), "uint16", (1, n, 4), None),
        "lam": ((MAX_VIEWS, batches), "float64", (1, batches), None),
        "cut": ((MAX_VIEWS, batches, 4), "uint16", (1, batches, 4), None),
    }


class LabelStore:
    """A store opened for reading and, view by view, for growing."""

    def __init__(self, folder: Path) -> None:
        if not (folder / "zarr.json").is_file():
            raise UserError(f"there is no label store at {folder}; make it with `snakemake {folder}/views/00000.json`")
        self.folder = folder
        self.group = zarr.open_group(folder, mode="r+")
        attributes = dict(self.group.attrs)
        if attributes.get("format") != FORMAT:
            raise UserError(f"label store {folder} has format {attributes.get('format')}, this version reads {FORMAT}")
        self.header = Header(**attributes)  # type: ignore[arg-type]

    def array(self, name: str) -> "zarr.Array[Any]":
        """One of the store's arrays."""
        array = self.group[name]
        assert isinstance(array, zarr.Array)
        return array

    def images(self) -> NDArray[np.uint8]:
        """The distilled images, (N, 3, S, S) uint8, checked against the header's digest."""
        images = np.asarray(self.array("images")[:], dtype=np.uint8)
        found = array_digest(images)
        if found != self.header.images_digest:
            raise UserError(
                f"the images in label store {self.folder} are not those its labels were made for; remove the store"
            )
        return images

    def marker(self, view: int) -> Path:
        """Completion marker of a view."""
        return self.folder / "views" / f"{view:05d}.json"

    def has(self, view: int) -> bool:
        """Whether a view is whole."""
        return self.marker(view).is_file()

    def write(self, view: int, drawn: View, logits: NDArray[np.float32]) -> None:
        """Add one view: its arrays first, its marker last. A marked view is never touched."""
        if self.has(view):
            raise UserError(
                f"view {view} of {self.folder} is complete and is not written again; remove the store to start over"
            )
        q, scale = encode_u8(logits)
        content: dict[str, Array] = {
            "q": q,
            "scale": scale,
            "image": drawn.image,
            "flip": drawn.flip,
            "partner": drawn.partner,
            "box": drawn.box,
            "lam": drawn.lam,
            "cut": drawn.cut,
        }
        for name, data in content.items():
            self.array(name).with_config({"write_empty_chunks": True})[view] = data
        files = {}
        for name in content:
            path = self._file(name, view)
            _fsync(path)
            files[name] = {"bytes": path.stat().st_size, "sha256": file_digest(path)}
        write_json(self.marker(view), {"format": FORMAT, "view": view, "files": files})

    def _file(self, name: str, view: int) -> Path:
        """The one file that holds an array's part of a view."""
        dimensions = self.array(name).ndim
        return self.folder / name / "c" / "/".join([str(view)] + ["0"] * (dimensions - 1))

    def check(self, view: int) -> None:
        """Refuse a view that is not marked, or whose files do not have the marked sizes."""
        if not self.has(view):
            raise UserError(
                f"view {view} of label store {self.folder} is not complete; run `snakemake {self.marker(view)}`"
            )
        for name, entry in read_json(self.marker(view))["files"].items():
            path = self._file(name, view)
            size = path.stat().st_size if path.is_file() else -1
            if size != entry["bytes"]:
                state = "is missing" if size < 0 else f"has {size} bytes instead of {entry['bytes']}"
                raise UserError(
                    f"label store {self.folder}: array {name} of view {view} {state}; remove {self.marker(view)} "
                    f"and run again to compute that view anew"
                )

    def read(self, name: str, views: int) -> Array:
        """An array's first `views` views; every one of them must be whole."""
        for view in range(views):
            self.check(view)
        try:
            return np.asarray(self.array(name)[:views])
        except Exception as error:  # a codec's checksum failed
            raise UserError(
                f"label store {self.folder}: array {name} is damaged ({error}); run `hald labels verify`"
            ) from error

    def drawn(self, view: int) -> View:
        """The integers of a stored view."""
        self.check(view)
        parts: dict[str, Ints] = {
            name: np.asarray(self.array(name)[view]).astype(np.int64) for name in ("image", "box", "partner", "cut")
        }
        return View(flip=np.asarray(self.array("flip")[view]) > 0, lam=np.asarray(self.array("lam")[view]), **parts)

    def require_classes(self, classes: list[str], name: str) -> None:
        """Refuse to go on with other classes than the labels were made for."""
        remedy = f"Rebuild the labels: remove {self.folder} and run again."
        require_same_classes(self.header.classes, f"label store {self.folder}", classes, name, remedy)


def _fsync(path: Path) -> None:
    with path.open("rb") as handle:
        os.fsync(handle.fileno())
    fsync_dir(path.parent)
