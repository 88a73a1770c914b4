"""Agreement of predictions: of one network over crops (before and after the hard stage), and of two networks."""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hald.analysis.frozen_network import FORWARD, Pixels, Probe, chunks, source_size
from hald.analysis.random_crops import CropRule, Crops, draw_crops
from hald.errors import UserError
from hald.numerics.random_streams import Floats, Ints, uniforms

PLAIN = CropRule()  # RandomResizedCrop's defaults, no flip
FLIPPED = CropRule(flip=0.5)


@dataclass(frozen=True)
class Agreement:
    """Mean cosine and Jensen-Shannon divergence (nats) of pairs of predictions."""

    cosine: float
    js: float


@dataclass(frozen=True)
class CropConsistency:
    """Agreement of two crops: means over the pairs of a class, then over classes."""

    same_image: Agreement
    other_image: Agreement
    pairs_per_class: int
    per_class: list[dict[str, float]]  # same_cosine, same_js, other_cosine, other_js of each class


@dataclass(frozen=True)
class ModelConsistency:
    """Agreement of two networks on the same crops, by temperature, means over crops and images."""

    by_temperature: dict[str, Agreement]
    images: int
    crops: int


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of the softmax of two tables of logits: (n, C), (n, C) -> (n,)."""
    return F.cosine_similarity(a.softmax(dim=1), b.softmax(dim=1), dim=1)


def jensen_shannon(a: Tensor, b: Tensor) -> Tensor:
    """Jensen-Shannon divergence in nats, 0 .. ln 2, of the softmax of two tables of logits: (n, C), (n, C) -> (n,)."""
    p, q = a.log_softmax(dim=1), b.log_softmax(dim=1)
    middle = torch.logaddexp(p, q) - math.log(2)
    return ((p.exp() * (p - middle)).sum(dim=1) + (q.exp() * (q - middle)).sum(dim=1)) / 2


METRICS = (cosine, jensen_shannon)


def crop_consistency(
    probe: Probe, images: Pixels, labels: Ints, pairs: int, seed: int, rule: CropRule = PLAIN
) -> CropConsistency:
    """Agreement over crops, `pairs` of each kind in every class. `labels` (N,) are the images' classes.

    Every pass gives each image of a class that is not done a pair with itself and one with another image (any but
    itself, so in a large set mostly of another class), counted for the first image's class.
    """
    classes = _checked_classes(labels, len(images))
    done = np.zeros(classes, dtype=np.int64)
    sums = torch.zeros(classes, 4, dtype=torch.float64, device=probe.device)
    turn = 0
    while (done < pairs).any():
        rows = due(labels, pairs - done)
        drawn = [draw_crops(rule, f"consistency-{i}", seed, turn, len(images), source_size(images)) for i in range(3)]
        step = uniforms("consistency-other", seed, turn, len(images), 1)[:, 0]
        for part in chunks(rows, FORWARD // 3):
            values = _pair_values(probe, images, part, other_images(part, step), drawn)
            sums.index_add_(0, torch.from_numpy(labels[part]).to(sums.device), values)
        done += np.bincount(labels[rows], minlength=classes)
        turn += 1
    return _by_class(sums / pairs, pairs)


def due(labels: Ints, wanted: Ints) -> Ints:
    """The first `wanted[c]` images of every class c (all of them, if it has fewer), in order."""
    order = np.argsort(labels, kind="stable")
    first = np.searchsorted(labels[order], np.arange(len(wanted)))
    rank = np.empty(len(labels), dtype=np.int64)
    rank[order] = np.arange(len(labels)) - first[labels[order]]
    return np.flatnonzero(rank < wanted[labels])


def _checked_classes(labels: Ints, images: int) -> int:
    classes = int(labels.max()) + 1
    empty = np.flatnonzero(np.bincount(labels, minlength=classes) == 0)
    if len(empty) or images != len(labels) or images < 2:
        raise UserError(
            f"crop consistency needs two images or more, a label for each and no empty class; found {images} images, "
            f"{len(labels)} labels, empty classes {empty.tolist()[:5]}"
        )
    return classes


def other_images(rows: Ints, step: Floats) -> Ints:
    """For each image of `rows` one of the others; `step` (N,) are uniforms, one per image."""
    count = len(step)
    return (rows + 1 + np.floor(step[rows] * (count - 1)).astype(np.int64)) % count


def _pair_values(probe: Probe, images: Pixels, rows: Ints, other: Ints, drawn: list[Crops]) -> Tensor:
    """(n, 4) cosine and JS of two crops of each image, then of a crop of it and one of another image."""
    chosen = (rows, rows, other)
    first, second, third = (probe.crop_logits(images, r, d.take(r)) for r, d in zip(chosen, drawn, strict=True))
    return torch.stack([metric(first, b) for b in (second, third) for metric in METRICS], dim=1)


def _by_class(means: Tensor, pairs: int) -> CropConsistency:
    names = ("same_cosine", "same_js", "other_cosine", "other_js")
    a, b, c, d = means.mean(dim=0).tolist()
    rows = [dict(zip(names, row, strict=True)) for row in means.tolist()]
    return CropConsistency(Agreement(a, b), Agreement(c, d), pairs, rows)


def model_consistency(
    first: Probe,
    second: Probe,
    images: Pixels,
    seed: int,
    crops: int = 10,
    temperatures: tuple[float, ...] = (0.5, 1.0),
    rule: CropRule = FLIPPED,
) -> ModelConsistency:
    """Agreement of two networks on `crops` crops of every image (a test split). The paper's temperature is 0.5."""
    if first.size != second.size:
        raise UserError(f"the networks see {first.size} and {second.size} px: they cannot be shown the same crops")
    sums = torch.zeros(len(temperatures), 2, dtype=torch.float64, device=first.device)
    for turn in range(crops):
        drawn = draw_crops(rule, "model-consistency", seed, turn, len(images), source_size(images))
        for part in chunks(np.arange(len(images)), FORWARD):
            a, b = (probe.crop_logits(images, part, drawn.take(part)) for probe in (first, second))
            sums += torch.stack([torch.stack([metric(a / t, b / t).sum() for metric in METRICS]) for t in temperatures])
    means = (sums / (len(images) * crops)).tolist()
    named = {f"{t:g}": Agreement(*pair) for t, pair in zip(temperatures, means, strict=True)}
    return ModelConsistency(named, len(images), crops)
