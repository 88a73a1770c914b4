"""Export to the label format of the released HALD code: one list of batches per label epoch, in torch files.

A batch is [boxes (B, 4) top, left, height, width as fp16 fractions of the image, flips (B,), partners (B,) as positions
in the batch, share, rectangle (top, left, bottom, right) in pixels of the crop, probabilities (B, C) fp16 at T = 20];
`sampler_indices_dict.pt` holds every epoch's image order.
"""

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from hald.errors import UserError
from hald.files import explained, filled
from hald.jobs.log import Progress
from hald.labels.layout import Header
from hald.labels.store import LabelStore
from hald.numerics.random_streams import Ints
from hald.numerics.views import View

TEMPERATURE = 20.0
ORDER_FILE = "sampler_indices_dict.pt"
CLASSES_FILE = "classes.txt"  # ours: the released format has no class names
CUT_ORDER = "tlbr"  # of rectangles: top, left, bottom, right; imported stores say so in their header
MARK_FILE, MARK = "format.txt", f"cut: {CUT_ORDER}"  # ours too: exports without it have rows and columns exchanged


def export_labels(store: LabelStore, target: Path) -> None:
    """Write a store's whole views in the released format, and its images as PNG in the order that it indexes."""
    require_cut_order(store)
    images = store.images()
    with explained(f"cannot export to {target}"), filled(target) as folder:
        _write_images(images, store.header, folder / "images")
        (folder / CLASSES_FILE).write_text("".join(f"{name}\n" for name in store.header.classes), encoding="utf-8")
        (folder / MARK_FILE).write_text(f"{MARK}\n", encoding="utf-8")
        progress = Progress(len(store.views()), "views written")
        order = {}
        for epoch, view in enumerate(store.views()):
            drawn = store.drawn(view)
            _save(_released_batches(store, view, drawn, images.shape[2:]), folder / f"epoch_{epoch}.tar")
            order[str(epoch)] = drawn.image.tolist()
            progress.step()
        _save(order, folder / ORDER_FILE)


def require_cut_order(store: LabelStore) -> None:
    """Refuse imported labels without the mark: their rectangles were read with rows and columns exchanged.

    For all that can use an imported store: no experiment can name one.
    """
    if not store.header.imported:
        return
    origin = store.header.spec.get("imported", "DIR")
    origin = origin if isinstance(origin, dict) else {"from": origin}
    if origin.get("cut") != CUT_ORDER:
        raise UserError(
            f"label store {store.folder} was imported by an older version of hald, which read CutMix rectangles as "
            f"left, top, right, bottom: its labels are not about its crops. Import them again: `hald labels import "
            f"{origin['from']} --images {origin.get('images') or 'IMAGES'} --to NEW.zarr`"
        )


def _save(content: Any, path: Path) -> None:
    """torch.save whose file system errors are Python's own: on a full disk torch raises a RuntimeError of its own."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    path.write_bytes(buffer.getbuffer())


def _released_batches(store: LabelStore, view: int, drawn: View, shape: tuple[int, ...]) -> list[list[Any]]:
    """One label epoch, batch by batch."""
    header = store.header
    rows = {name: torch.from_numpy(array) for name, array in store.rows(view)}
    logits = store.codec.decode(rows, len(header.classes))
    probability = torch.softmax(logits / TEMPERATURE, dim=1).to(torch.float16)
    starts = range(0, header.count, header.batch)
    return [
        _released_batch(drawn, probability, shape, number, i, min(i + header.batch, header.count))
        for number, i in enumerate(starts)
    ]


def _released_batch(
    drawn: View, probability: Tensor, shape: tuple[int, ...], number: int, first: int, last: int
) -> list[Any]:
    rows = slice(first, last)
    return [
        torch.from_numpy(box_fractions(drawn.box[rows], shape)),
        torch.from_numpy(drawn.flip[rows].copy()),
        torch.from_numpy(drawn.partner[rows].copy()),
        float(drawn.lam[number]),
        tuple(int(edge) for edge in drawn.cut[number]),
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
