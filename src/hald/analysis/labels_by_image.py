"""A label store image by image: the labels of one image in all views, and a student's losses on them."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hald.analysis.frozen_network import FORWARD, Probe
from hald.errors import UserError
from hald.labels.store import LabelStore
from hald.numerics.random_streams import Floats, Ints
from hald.numerics.views import View, render_batches


def stored_logits(store: LabelStore, view: int, rows: Ints, device: torch.device) -> Tensor:
    """(n, C) float32 decoded logits of some positions of a view."""
    arrays = {name: torch.from_numpy(array[rows]).to(device) for name, array in store.rows(view)}
    return store.codec.decode(arrays, len(store.header.classes))


def positions(drawn: View) -> Ints:
    """(N,) where each image stands in a view."""
    place = np.argsort(drawn.image, kind="stable")
    if not np.array_equal(drawn.image[place], np.arange(len(place))):
        raise UserError("a view of this label store does not show every image once; its labels cannot be compared")
    return place


def image_logits(store: LabelStore, views: int, images: Ints, device: torch.device) -> Tensor:
    """(V, n, C) float32 stored logits of `images` in the first `views` views, as labelled: mixed with a partner."""
    parts = [
        stored_logits(store, view, positions(store.drawn(view))[images], device)
        for view in range(checked(store, views))
    ]
    return torch.stack(parts)


def stored_traces(store: LabelStore, views: int, temperature: float, device: torch.device) -> Tensor:
    """(N,) float64 trace of the unbiased covariance of every image's labels over the first `views` views."""
    shape = (store.header.count, len(store.header.classes))
    total, squares = torch.zeros(shape, dtype=torch.float64, device=device), torch.zeros(shape[0], device=device)
    for view in range(checked(store, views)):
        p = (stored_logits(store, view, positions(store.drawn(view)), device).double() / temperature).softmax(dim=1)
        total += p
        squares = squares + p.square().sum(dim=1)
    return (squares - total.square().sum(dim=1) / views) / (views - 1)


def checked(store: LabelStore, views: int) -> int:
    """The number of views asked for, if the store has them all."""
    there = len(store.views())
    if views < 2 or views > there:
        raise UserError(f"label store {store.folder} has {there} views, {views} were asked for (at least 2 are needed)")
    return views


def image_labels(store: LabelStore) -> Ints:
    """(N,) classes of a store's images, which lie class by class."""
    classes, count = len(store.header.classes), store.header.count
    if count % classes:
        raise UserError(f"label store {store.folder} has {count} images, which {classes} classes cannot share evenly")
    return np.repeat(np.arange(classes), count // classes)


def own_shares(store: LabelStore, drawn: View) -> Floats:
    """(N,) part of the picture at each position that is its own: one minus the rectangle, or mixup's share."""
    cut = drawn.cut
    area = (cut[:, 2] - cut[:, 0]) * (cut[:, 3] - cut[:, 1])
    share = drawn.lam if drawn.mix == "mixup" else 1 - area / store.header.size**2
    return np.asarray(share[np.arange(store.header.count) // store.header.batch], dtype=np.float64)


@torch.inference_mode()
def view_losses(probe: Probe, store: LabelStore, views: int, temperature: float = 20.0) -> Floats:
    """(V, N) KL(stored label || student) of every image in every view, student in eval mode."""
    images = torch.from_numpy(store.images()).to(probe.device)
    losses = []
    for view in range(checked(store, views)):
        drawn = store.drawn(view)
        answers = stored_logits(store, view, np.arange(store.header.count), probe.device)
        loss = _divergence(_view_logits(probe, store, images, drawn), answers, temperature)
        losses.append(loss.cpu().numpy()[positions(drawn)])
    return np.stack(losses)


def _view_logits(probe: Probe, store: LabelStore, images: Tensor, drawn: View) -> Tensor:
    """(N, C) the student's logits at every position of a view, in whole stored batches."""
    size, count = store.header.batch, store.header.count
    step = max(FORWARD // size, 1) * size
    parts = []
    for start in range(0, count, step):
        rows = np.arange(start, min(start + step, count))
        parts.append(probe.logits(render_batches(images, drawn, rows, rows // size, store.header.size)))
    return torch.cat(parts)


def _divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """(n,) KL of each row; a class that was not kept (-inf) has exactly none."""
    log_q, p = (student / temperature).log_softmax(dim=1), (teacher.double() / temperature).softmax(dim=1)
    return F.kl_div(log_q, p, reduction="none").sum(dim=1)
