"""Agreement of predictions: its two measures, and two networks on the same crops."""

import math
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hald.analysis.frozen_network import FORWARD, Pixels, Probe, chunks, source_size
from hald.analysis.random_crops import CropRule, draw_crops
from hald.analysis.spec import Subject
from hald.analysis.subjects import Found, Lab
from hald.errors import UserError

FLIPPED = CropRule(flip=0.5)


@dataclass(frozen=True)
class Agreement:
    """Mean cosine and Jensen-Shannon divergence (nats) of pairs of predictions."""

    cosine: float
    js: float


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


def agreement(lab: Lab, subject: Subject, reference: Subject | None) -> Found:
    """Agreement of a student with another one, or with its teacher, on crops of the test pictures.

    By temperature, as T0.5 and T1; cosines also in percent, as one of the paper's tables has them.
    """
    options = lab.spec.options
    other = lab.student(reference) if reference else lab.teacher(subject)
    rule = replace(FLIPPED, flip=options["flip"])
    crops = options["crops"] or 10
    found = model_consistency(lab.student(subject), other, lab.test[0], options["seed"], crops, rule=rule)
    by_temperature = {
        f"T{t}".replace(".", "_"): asdict(pair) | {"cosine_percent": 100 * pair.cosine}
        for t, pair in found.by_temperature.items()
    }
    return by_temperature | {"images": found.images, "crops": found.crops}


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
