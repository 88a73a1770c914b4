"""Does a student answer alike for two crops of one image? Before and after the hard stage."""

from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from hald.analysis.consistency import METRICS, Agreement
from hald.analysis.frozen_network import FORWARD, Pixels, Probe, chunks, source_size
from hald.analysis.random_crops import CropRule, Crops, draw_crops
from hald.analysis.subjects import Found, Lab
from hald.errors import UserError
from hald.numerics.random_streams import Floats, Ints, uniforms

PLAIN = CropRule()  # RandomResizedCrop's defaults, no flip


@dataclass(frozen=True)
class CropConsistency:
    """Agreement of two crops: means over the pairs of a class, then over classes."""

    same_image: Agreement
    other_image: Agreement
    pairs_per_class: int
    per_class: list[dict[str, float]]  # same_cosine, same_js, other_cosine, other_js of each class


def measure(lab: Lab, number: int) -> Found:
    """Agreement of a student's answers for two crops of an image."""
    subject, options = lab.spec.subjects[number], lab.spec.options
    images, labels = lab.images(subject)
    return asdict(crop_consistency(lab.student(subject), images, labels, options["samples"] or 500, options["seed"]))


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
