"""The soft-label store: one Zarr group that holds images, teachers, views and labels, and grows view by view.

A store is made in one rename and never changes but by new views. A view is whole when its marker is there: the marker
is written last and carries the sizes and hashes of the view's files. Readers use marked views only; the writer refuses
to touch one. Array lengths are fixed and large, because only written files take space; markers say how many views
there are.
"""

import errno
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.errors import ZarrUserWarning

from hald.errors import UserError
from hald.files import array_digest, file_digest, fsync_dir, read_json, write_json
from hald.labels.codec import Arrays, Codec, Logits, codec_names, codec_of
from hald.labels.layout import FORMAT, Header
from hald.numerics.views import View
from hald.same_origin import require_same_classes

# The Rust pipeline reads twice as fast; only zarr-python's writes a file in one rename.
READER, WRITER = "zarrs.ZarrsCodecPipeline", "zarr.core.codec_pipeline.BatchedCodecPipeline"
GEOMETRY = ("image", "box", "flip", "partner", "lam", "cut")

# pcodec is no part of the Zarr 3 specification; only codec i16 uses it, and it says so in its documentation
warnings.filterwarnings("ignore", category=ZarrUserWarning, message="Numcodecs codecs are not in the Zarr")


class LabelStore:
    """A store opened for reading and, view by view, for growing."""

    def __init__(self, folder: Path) -> None:
        if not (folder / "zarr.json").is_file():
            raise UserError(f"there is no label store at {folder}; `hald labels ls` lists those of the config")
        self.folder = folder
        try:
            self.group = zarr.open_group(folder, mode="r+" if os.access(folder, os.W_OK) else "r")
        except Exception as error:  # no JSON, or not that of a group
            raise UserError(
                f"label store {folder}: its metadata are damaged, {folder / 'zarr.json'} cannot be read ({error}); "
                f"put that file back from a copy of the store"
            ) from error
        attributes = dict(self.group.attrs)
        found = attributes.get("format")
        if "codec" not in attributes:
            raise UserError(f"{folder} is a Zarr group, but no label store; `hald labels ls` lists those of the config")
        if found != FORMAT:
            newer = isinstance(found, int) and found > FORMAT
            remedy = "update this package" if newer else "remove it and run again"
            raise UserError(f"label store {folder} has format {found}, this version reads {FORMAT}; {remedy}")
        if attributes["codec"] not in codec_names():
            raise UserError(
                f"label store {folder} has codec {attributes['codec']}, this version knows {', '.join(codec_names())}"
            )
        self.header = Header(**attributes)  # type: ignore[arg-type]
        self._arrays: dict[tuple[str, str], zarr.Array[Any]] = {}

    @property
    def codec(self) -> Codec:
        """How labels are stored here."""
        return codec_of(self.header.codec)

    def array(self, name: str, pipeline: str = READER) -> "zarr.Array[Any]":
        """One of the store's arrays, opened once for reading and once for writing."""
        if (name, pipeline) not in self._arrays:
            with zarr.config.set({"codec_pipeline.path": pipeline}):
                self._arrays[name, pipeline] = self._open(name).with_config({"write_empty_chunks": True})
        return self._arrays[name, pipeline]

    def _open(self, name: str) -> "zarr.Array[Any]":
        """An array whose metadata can be read and are those of the store's codec."""
        try:
            array = self.group[name]
            assert isinstance(array, zarr.Array)
        except Exception as error:  # no such file, no JSON, a codec that is not known
            raise UserError(
                f"label store {self.folder}: its metadata are damaged, array {name} cannot be opened "
                f"({type(error).__name__}: {error}); put {self.folder / name}/zarr.json back from a copy of the store"
            ) from error
        wanted = self.codec.dtypes.get(name, str(array.dtype))
        if str(array.dtype) != wanted:
            raise UserError(
                f"label store {self.folder}: the header says codec {self.header.codec}, for which array {name} would "
                f"be {wanted}, but it is {array.dtype}; the header was changed"
            )
        return array

    def images(self) -> NDArray[np.uint8]:
        """The distilled images, (N, 3, S, S) uint8, checked against the header's digest."""
        try:
            images = np.asarray(self.array("images")[:], dtype=np.uint8)
        except Exception as error:  # a codec's checksum failed, or files are gone
            raise self._without_images(f"are damaged ({error})") from error
        if array_digest(images) != self.header.images_digest:
            raise self._without_images("are not those its labels were made for")
        return images

    def _without_images(self, state: str) -> UserError:
        """What is wrong with the images, what is lost without them, and how to have them again."""
        folder, header = self.folder, self.header
        return UserError(
            f"the images in label store {folder} {state}. Its {len(self.views())} views of {header.count} labels are "
            f"as they were, but useless without them. "
            + (
                f"Import it again, or put {folder}/images back from a copy of the store"
                if header.imported
                else f"They are those of image set {header.spec.get('images')}: if a folder in results/images ends in "
                f"that key, type `rm -r {folder}/images && cp -r <that folder>/images {folder}/images`, then "
                f"`hald labels verify {folder}`. (Both may be hard links to the same bytes: if it does not help, "
                f"remove the image set, make it again with snakemake, and repeat.) Or put them back from a "
                f"copy of the store"
            )
        )

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
                f"view {view} of label store {self.folder} is not complete; start snakemake again, it makes what lacks"
            )
        try:
            return dict(read_json(self.marker(view))["files"])
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"label store {self.folder}: the marker of view {view} is damaged ({error}); {self.remedy(view)}"
            ) from error

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
