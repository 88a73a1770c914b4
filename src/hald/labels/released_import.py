"""Import of label directories of the released HALD code (see `exchange` for the format).

Probabilities become centred logits 20 log p; fractions of the image become pixels by rounding, which is exact. How the
crops were drawn and which teacher labelled them is not in the files: such a store can be looked at, verified and
exported, but not grown.
"""

import contextlib
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hald.errors import UserError
from hald.files import array_digest, aside, explained, publish_dir
from hald.jobs.claims import user_name
from hald.jobs.log import Progress
from hald.labels.codec import Logits
from hald.labels.layout import FORMAT, IMPORTED, Header, create_store
from hald.labels.relabel import library_versions
from hald.labels.released_export import CLASSES_FILE, CUT_ORDER, MARK, MARK_FILE, ORDER_FILE, TEMPERATURE
from hald.labels.store import LabelStore
from hald.numerics.random_streams import Ints
from hald.numerics.views import View
from hald.synthesis.image_set_writer import Unit, write_set

ENOUGH = 64  # batches after which one has a CutMix rectangle at the crop's edge, but for a chance of 1e-11


@contextlib.contextmanager
def _numpy_scalars() -> Iterator[None]:
    """Let torch.load read NumPy numbers inside the released lists; nothing else that could run code."""
    kinds = [type(np.dtype(name)) for name in ("float64", "float32", "float16", "int64", "int32", "bool")]
    scalar = np._core.multiarray.scalar  # type: ignore[attr-defined]
    names = [scalar, np.dtype, *kinds, (scalar, "numpy.core.multiarray.scalar")]
    with torch.serialization.safe_globals(names):
        yield


def _load(path: Path) -> Any:
    try:
        with _numpy_scalars():
            return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; is {path.parent} a label directory of the released code?") from error
    except Exception as error:  # the unpickler's own kinds
        raise UserError(
            f"{path} holds more than tensors and numbers, or is damaged, and is not opened: {error}"
        ) from error


def import_labels(
    source: Path, images: NDArray[np.uint8], classes: list[str], target: Path, codec: str = "i16", images_from: str = ""
) -> None:
    """Read a released label directory into a new store at `target`, with the images that it indexes.

    `images` (N, 3, S, S) are in ImageFolder order, class by class.
    """
    if target.exists():
        raise UserError(f"{target} exists already; imports never change a store, so give a name that is free")
    epochs = _epoch_files(source)
    _require_mark(source)
    order = _orders(source / ORDER_FILE, len(epochs), len(images))
    header = _imported_header(source, _load(epochs[0]), images, classes, codec, images_from)
    building = aside(target) / "store.zarr"
    with explained(f"cannot import to {target}"):
        try:
            building.parent.mkdir(parents=True)
            _empty_store(building, header, images)
            store = LabelStore(building)
            progress = Progress(len(epochs), "views read")
            for view, path in enumerate(epochs):
                store.write(view, *_imported_view(_load(path), order[view], header.size, path))
                progress.step()
            publish_dir(building, target, "zarr.json")
        finally:
            shutil.rmtree(building.parent, ignore_errors=True)


def _require_mark(source: Path) -> None:
    """Refuse our own exports of the time before they were marked."""
    mark = source / MARK_FILE
    if not (source / CLASSES_FILE).is_file():
        return  # not ours
    if not mark.is_file() or MARK not in mark.read_text(encoding="utf-8", errors="replace").splitlines():
        raise UserError(
            f"{source} was exported by an older version of hald (it has {CLASSES_FILE}, but no {MARK_FILE} that says "
            f"'{MARK}'): its CutMix rectangles are left, top, right, bottom, where the released code has top, left, "
            f"bottom, right. Export it again with `hald labels export STORE.zarr FOLDER`. (If the released code made "
            f"it, move {CLASSES_FILE} elsewhere and name it with --classes.)"
        )


def _orders(path: Path, epochs: int, images: int) -> dict[int, Ints]:
    """The image order of every epoch."""
    order = {int(epoch): np.asarray(rows, dtype=np.int64) for epoch, rows in _load(path).items()}
    if sorted(order) != list(range(epochs)):
        raise UserError(f"{path} has orders for {len(order)} epochs, expected {epochs}: one for each epoch_<e>.tar")
    for epoch, rows in order.items():
        if not np.array_equal(np.sort(rows), np.arange(len(rows))) or len(rows) != images:
            raise UserError(
                f"{path}: epoch {epoch} is an order of {len(rows)} images, but there are {images}; are these the "
                f"images that the labels were made for?"
            )
    return order


def _empty_store(folder: Path, header: Header, images: NDArray[np.uint8]) -> None:
    """A store of given images, without teachers and views."""
    ipc = len(images) // len(header.classes)
    units = (Unit(images[i : i + ipc], np.full(ipc, np.nan, dtype=np.float32)) for i in range(0, len(images), ipc))
    write_set(folder.with_suffix(".images"), units, header.classes, ipc, header.size, dataset_digest="")
    create_store(folder, header, folder.with_suffix(".images"), [])


def _epoch_files(source: Path) -> list[Path]:
    found = {
        int(match[1]): path
        for path in source.glob("epoch_*.tar")
        if (match := re.fullmatch(r"epoch_(\d+)\.tar", path.name))
    }
    if not found:
        raise UserError(f"no epoch_<e>.tar in {source}; is it a label directory of the released code?")
    missing = sorted(set(range(max(found) + 1)) - found.keys())
    if missing:
        raise UserError(f"{source} has {len(found)} label epochs, but epoch_{missing[0]}.tar is missing")
    return [found[epoch] for epoch in sorted(found)]


def _imported_view(batches: list[Any], order: Ints, size: int, path: Path) -> tuple[View, Logits]:
    """One label epoch: its geometry in pixels and its logits."""
    boxes, flips, partners, shares, cuts, probabilities = zip(*batches, strict=True)
    fractions = np.concatenate([np.asarray(part, dtype=np.float64) for part in boxes])
    if len(fractions) != len(order):
        raise UserError(f"{path} has {len(fractions)} crops, the image order has {len(order)}")
    p = torch.cat([torch.as_tensor(part) for part in probabilities]).to(torch.float64)
    logits = TEMPERATURE * torch.log(p.clamp(min=float(np.finfo(np.float16).smallest_subnormal)))
    view = View(
        image=order,
        box=_pixels(fractions, size, path),
        flip=np.concatenate([np.asarray(part) for part in flips]).astype(bool),
        partner=np.concatenate([np.asarray(part) for part in partners]).astype(np.int64),
        lam=np.array([float(share) for share in shares]),
        cut=_rectangles(cuts, size, path),
    )
    return view, (logits - logits.mean(dim=1, keepdim=True)).to(torch.float32).numpy()


def _pixels(fractions: NDArray[np.float64], size: int, path: Path) -> Ints:
    """Half-precision fractions of the image as whole pixels: they must be, to that precision, for the right size."""
    exact = fractions * size
    boxes = np.rint(exact).astype(np.int64)
    off = np.abs(exact - boxes).max(axis=1)
    outside = (boxes[:, :2] < 0).any(axis=1) | (boxes[:, :2] + boxes[:, 2:] > size).any(axis=1)
    bad = np.flatnonzero((off > size * 2.0**-11 + 1e-9) | outside)
    if len(bad):
        raise UserError(
            f"{path}: crop {bad[0]} ({len(bad)} such) is {[round(float(value), 2) for value in exact[bad[0]]]} (top, "
            f"left, height, width) in pixels of images of {size} px, which is no crop of one; give the images that the "
            f"labels were made for"
        )
    return boxes


def _rectangles(cuts: tuple[Any, ...], size: int, path: Path) -> Ints:
    """CutMix rectangles top, left, bottom, right in pixels of the crop."""
    edges = np.array([[int(edge) for edge in cut] for cut in cuts])
    largest = int(edges.max())
    if largest > size or (len(edges) >= ENOUGH and 0 < largest < size):
        made = f"{largest} px or more" if largest > size else f"{largest} px"
        raise UserError(
            f"{path}: the CutMix rectangles of its {len(edges)} batches reach to pixel {largest}, so the labels were "
            f"made for crops of {made}, but the images have {size} px; give the images that they were made for"
        )
    return edges


def _imported_header(
    source: Path, batches: list[Any], images: NDArray[np.uint8], classes: list[str], codec: str, images_from: str
) -> Header:
    found = np.asarray(batches[0][5]).shape[1]
    if found != len(classes):
        raise UserError(f"{source} has labels for {found} classes, the images have {len(classes)}")
    batch, size = len(batches[0][0]), images.shape[-1]
    origin = {"from": str(source.resolve()), "images": images_from, "by": user_name(), "at": time.strftime("%Y-%m-%d")}
    origin |= {"cut": CUT_ORDER}
    return Header(
        format=FORMAT,
        key=IMPORTED,
        code="",
        code_name="",
        classes=classes,
        count=len(images),
        batch=batch,
        size=size,
        codec=codec,
        top_k=0,
        images_digest=array_digest(images),
        dataset_digest="",
        spec={"imported": origin},
        view_settings={"mix": "cutmix"},  # nothing else about them is known
        teachers=[],
        versions=library_versions(),
    )
