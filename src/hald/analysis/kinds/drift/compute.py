"""The paper's first figure from data: crops of one image, and what the teacher said about each of them."""

import base64
import io
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from hald.analysis.labels_by_image import image_labels, own_shares, positions, stored_logits, stored_traces
from hald.analysis.subjects import Found, Lab
from hald.errors import UserError
from hald.labels.store import LabelStore
from hald.numerics.random_streams import Ints
from hald.numerics.views import View, render_batches

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Answer:
    """A class and its probability."""

    name: str
    probability: float


@dataclass(frozen=True)
class Crop:
    """One stored crop of an image: its box in the image and the teacher's first classes for it."""

    view: int
    position: int  # in the view
    box: list[int]  # top, left, height, width
    flip: bool
    own_share: float  # part of the picture that is not mixed in from another image
    top: list[Answer]


@dataclass(frozen=True)
class Example:
    """An image, its class, and some of its crops."""

    image: int
    name: str
    crops: list[Crop]


def measure(lab: Lab, number: int) -> Found:
    """Images whose labels drift most over their crops: the crops, and the teacher's first classes for each."""
    subject, options = lab.spec.subjects[number], lab.spec.options
    store, crops = lab.store(subject), options["crops"] or 4
    views = subject.place["slc"] // subject.place["ipc"]
    images = most_drifting(store, views, options["samples"] or 4)
    shown = drift_examples(store, views, images, min(crops, views))
    pictures = store.images()
    return {
        "examples": [asdict(example) for example in shown],
        "images": [as_text(as_picture(pictures[example.image])) for example in shown],
        "crops": [[as_text(picture) for picture in row] for row in crop_pictures(store, shown)],
    }


def most_drifting(store: LabelStore, views: int, count: int, temperature: float = 1.0) -> Ints:
    """The `count` images of different classes whose labels vary most over the views, strongest first."""
    labels = image_labels(store)
    order = np.argsort(-stored_traces(store, views, temperature, CPU).numpy(), kind="stable")
    first = np.unique(labels[order], return_index=True)[1]
    return order[np.sort(first)][:count]


def drift_examples(
    store: LabelStore, views: int, images: Ints, crops: int = 4, top: int = 3, temperature: float = 1.0
) -> list[Example]:
    """For each image its `crops` stored crops with the least mixed into them, and the teacher's `top` classes."""
    drawn = [store.drawn(view) for view in range(views)]
    place = np.stack([positions(view)[images] for view in drawn])
    share = np.stack([own_shares(store, view)[at] for view, at in zip(drawn, place, strict=True)])
    if crops > views:
        raise UserError(f"{crops} crops of each image were asked for, but only {views} views are stored")
    chosen = np.sort(np.argsort(-share, axis=0, kind="stable")[:crops], axis=0)
    found = [_answers(store, view, place[view], top, temperature) for view in range(views)]
    labels = image_labels(store)
    return [
        Example(
            int(image),
            store.header.classes[labels[image]],
            [_crop(drawn[v], int(v), int(place[v, i]), float(share[v, i]), found[v][i]) for v in chosen[:, i]],
        )
        for i, image in enumerate(images)
    ]


def _answers(store: LabelStore, view: int, rows: Ints, top: int, temperature: float) -> list[list[Answer]]:
    """The first classes of some positions of a view."""
    p = (stored_logits(store, view, rows, CPU).double() / temperature).softmax(dim=1)
    best = p.topk(min(top, p.shape[1]), dim=1)
    names = store.header.classes
    return [
        [Answer(names[c], value) for c, value in zip(index, values, strict=True)]
        for index, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def _crop(drawn: View, view: int, position: int, share: float, top: list[Answer]) -> Crop:
    return Crop(view, position, drawn.box[position].tolist(), bool(drawn.flip[position]), share, top)


def crop_pictures(store: LabelStore, examples: list[Example]) -> list[list[NDArray[np.uint8]]]:
    """The crops as the teacher saw them, mixed: for each example a list of (S, S, 3) uint8."""
    images, size = torch.from_numpy(store.images()), store.header.batch
    pictures = []
    for example in examples:
        row = []
        for crop in example.crops:
            first = crop.position // size * size
            rows = np.arange(first, min(first + size, store.header.count))
            batch = render_batches(images, store.drawn(crop.view), rows, rows // size, store.header.size)
            row.append(as_picture((batch[crop.position - first] * 255).round().clamp(0, 255).to(torch.uint8).numpy()))
        pictures.append(row)
    return pictures


def as_picture(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(3, H, W) -> (H, W, 3)."""
    return np.ascontiguousarray(image.transpose(1, 2, 0))


def as_text(picture: NDArray[np.uint8]) -> str:
    """A picture (H, W, 3) as base64 of a PNG, so that a result is one JSON file."""
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "png")
    return base64.b64encode(stream.getvalue()).decode()
