"""Exchange with the label format of the released HALD code: one list of batches per label epoch, in torch files.

A batch is [boxes (B, 4) fp16 fractions of the image, flips (B,), partners (B,), share, rectangle (left, top, right,
bottom), probabilities (B, C) fp16 at T = 20]; `sampler_indices_dict.pt` holds every epoch's image order.
"""

import contextlib
import re
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from hald.draws import Ints
from hald.errors import UserError
from hald.files import array_digest, publish_dir
from hald.jobs import Progress
from hald.labels.codec import Logits
from hald.labels.relabel import library_versions
from hald.labels.store import FORMAT, Header, LabelStore, create_store
from hald.synthesis.build import Unit, write_set
from hald.views import View, ViewSettings

TEMPERATURE = 20.0
ORDER_FILE = "sampler_indices_dict.pt"


def export_labels(store: LabelStore, target: Path) -> None:
    """Write a store's whole views in the released format, and its images as PNG in the order that it indexes."""
    _require_empty(target)
    images, header = store.images(), store.header
    _write_images(images, header, target / "images")
    progress = Progress(len(store.views()), "views written")
    order = {}
    for epoch, view in enumerate(store.views()):
        drawn = store.drawn(view)
        rows = {name: torch.from_numpy(array) for name, array in store.rows(view)}
        probability = torch.softmax(store.codec.decode(rows, len(header.classes)) / TEMPERATURE, dim=1).to(
            torch.float16
        )
        bounds = [(i, min(i + header.batch, header.count)) for i in range(0, header.count, header.batch)]
        batches = [_released_batch(drawn, probability, images.shape[2:], number, *b) for number, b in enumerate(bounds)]
        torch.save(batches, target / f"epoch_{epoch}.tar")
        order[str(epoch)] = drawn.image.tolist()
        progress.step()
    torch.save(order, target / ORDER_FILE)


def _require_empty(target: Path) -> None:
    if target.exists() and any(target.iterdir()):
        raise UserError(f"{target} is not empty; give a folder that does not exist yet")
    target.mkdir(parents=True, exist_ok=True)


def _released_batch(
    drawn: View, probability: Tensor, shape: tuple[int, ...], number: int, first: int, last: int
) -> list[Any]:
    rows = slice(first, last)
    top, left, bottom, right = (int(edge) for edge in drawn.cut[number])
    return [
        torch.from_numpy(box_fractions(drawn.box[rows], shape)),
        torch.from_numpy(drawn.flip[rows].copy()),
        torch.from_numpy(drawn.partner[rows].copy()),
        float(drawn.lam[number]),
        (left, top, right, bottom),
        probability[rows].clone(),
    ]


def box_fractions(box: Ints, shape: tuple[int, ...]) -> NDArray[np.float16]:
    """Boxes as fp16 fractions of (height, width), rounded up: the released reader truncates, to the same pixel."""
    height, width = shape
    exact = box / np.array([height, width, height, width])
    half = exact.astype(np.float16)
    return np.asarray(np.where(half < exact, np.nextafter(half, np.float16(2)), half), dtype=np.float16)


def _write_images(images: NDArray[np.uint8], header: Header, folder: Path) -> None:
    """PNG files whose sorted order is the store's image order: new<ccc>/class<ccc>_id<iii>.png."""
    ipc = header.count // len(header.classes)
    wide = max(3, len(str(len(header.classes) - 1))), max(3, len(str(ipc - 1)))
    for i, image in enumerate(images):
        label, number = divmod(i, ipc)
        path = folder / f"new{label:0{wide[0]}d}" / f"class{label:0{wide[0]}d}_id{number:0{wide[1]}d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.transpose(1, 2, 0)).save(path)


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
    source: Path, images: NDArray[np.uint8], classes: list[str], target: Path, codec: str = "i16"
) -> None:
    """Read a released label directory into a new store at `target`, with the images that it indexes.

    `images` (N, 3, H, W) are in ImageFolder order. Probabilities become centred logits 20 log p; fractions become
    pixels by rounding, which is exact. Such a store has no teacher: it can be trained on and verified, but not grown.
    """
    if target.exists():
        raise UserError(f"{target} exists already; imports never change a store")
    epochs = _epoch_files(source)
    order = {int(epoch): np.asarray(rows, dtype=np.int64) for epoch, rows in _load(source / ORDER_FILE).items()}
    if sorted(order) != list(range(len(epochs))) or any(len(rows) != len(images) for rows in order.values()):
        raise UserError(
            f"{source / ORDER_FILE} has orders for {len(order)} epochs, expected {len(epochs)} of {len(images)} "
            f"images each"
        )
    header = _imported_header(source, _load(epochs[0]), images, classes, codec)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as aside:
        building = Path(aside) / "store.zarr"
        _empty_store(building, header, images)
        store = LabelStore(building)
        progress = Progress(len(epochs), "views read")
        for view, path in enumerate(epochs):
            store.write(view, *_imported_view(_load(path), order[view], images.shape[2:], path))
            progress.step()
        publish_dir(building, target, "zarr.json")


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


def _imported_view(batches: list[Any], order: Ints, shape: tuple[int, ...], path: Path) -> tuple[View, Logits]:
    """One label epoch: its geometry in pixels and its logits."""
    boxes, flips, partners, shares, cuts, probabilities = zip(*batches, strict=True)
    height, width = shape
    fractions = np.concatenate([np.asarray(part, dtype=np.float64) for part in boxes])
    if len(fractions) != len(order):
        raise UserError(f"{path} has {len(fractions)} crops, the image order has {len(order)}")
    edges = np.array([[int(top), int(left), int(bottom), int(right)] for left, top, right, bottom in cuts])
    p = torch.cat([torch.as_tensor(part) for part in probabilities]).to(torch.float64)
    logits = TEMPERATURE * torch.log(p.clamp(min=float(np.finfo(np.float16).smallest_subnormal)))
    view = View(
        image=order,
        box=np.rint(fractions * np.array([height, width, height, width])).astype(np.int64),
        flip=np.concatenate([np.asarray(part) for part in flips]).astype(bool),
        partner=np.concatenate([np.asarray(part) for part in partners]).astype(np.int64),
        lam=np.array([float(share) for share in shares]),
        cut=edges,
    )
    return view, (logits - logits.mean(dim=1, keepdim=True)).to(torch.float32).numpy()


def _imported_header(
    source: Path, batches: list[Any], images: NDArray[np.uint8], classes: list[str], codec: str
) -> Header:
    found = np.asarray(batches[0][5]).shape[1]
    if found != len(classes):
        raise UserError(f"{source} has labels for {found} classes, the images have {len(classes)}")
    batch, size = len(batches[0][0]), images.shape[-1]
    settings = ViewSettings(0, len(images), batch, images.shape[2:], size, (0.0, 1.0), (0.0, 1.0), 0.5, "cutmix", 1.0)
    return Header(
        format=FORMAT,
        key="imported",
        code="",
        classes=classes,
        count=len(images),
        batch=batch,
        size=size,
        codec=codec,
        top_k=0,
        images_digest=array_digest(images),
        dataset_digest="",
        spec={"imported": source.name},
        view_settings=asdict(settings),
        teachers=[],
        versions=library_versions(),
    )
