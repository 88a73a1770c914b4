"""Local-view semantic drift: how much more a teacher's answer varies over local views than over global ones.

For each image, Tr(Sigma) is the trace of the unbiased covariance of K softmax predictions at temperature 1, and
R = Tr(strong) / (Tr(weak) + eps). The paper's weak view is always the same, so its trace is rounding noise and R is in
effect Tr(strong) / eps; `VARIED` has a weak view that varies.
"""

from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from hald.analysis.frozen_network import FORWARD, Pixels, Probe, chunks, source_size
from hald.analysis.random_crops import CropRule, draw_crops
from hald.analysis.subjects import Found, Lab
from hald.analysis.variance import total_variance
from hald.errors import UserError
from hald.numerics.random_streams import Floats, Ints, generator

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
STRONG = CropRule(scale=(0.3, 1.0), flip=0.5, jitter=(0.4, 0.4, 0.4, 0.1))


@dataclass(frozen=True)
class Definition:
    """What is compared: `draws` predictions over weak and over strong views of each image."""

    name: str
    weak: CropRule
    strong: CropRule = STRONG
    draws: int = 8
    eps: float = 1e-8


def paper_definition(share: float = 1.0, draws: int = 8, flip: float = 0.5) -> Definition:
    """The released one: weak = the evaluation view. `share`: 224/256 where evaluation crops the middle, else 1.

    Give `flip` 0 for pictures that mean something else when mirrored, such as digits.
    """
    return Definition("paper", CropRule(central=share), replace(STRONG, flip=flip), draws)


def varied_definition(draws: int = 8, flip: float = 0.5) -> Definition:
    """Not degenerate: weak = crops of at least 80 % of the picture, flipped or not."""
    return Definition("varied", CropRule(scale=(0.8, 1.0), flip=flip), replace(STRONG, flip=flip), draws)


@dataclass(frozen=True)
class Drift:
    """Traces of every image and their summary. Logarithms are to base 10; images with R = 0 have none."""

    definition: str
    weak: list[float]  # Tr(Sigma) of each image over weak views
    strong: list[float]
    log_ratio: list[float]  # log10 R of the images with R > 0
    mean_weak: float
    mean_strong: float
    mean_log_ratio: float | None  # what the paper prints
    log_mean_ratio: float | None  # what the paper's column head says
    quantiles: dict[str, float]  # of log10 R
    share_above_one: float
    without_ratio: int  # images with R = 0


def measure(lab: Lab, number: int) -> Found:
    """Drift of a teacher on distilled images, with the paper's fixed weak view and with one that varies."""
    subject, options = lab.spec.subjects[number], lab.spec.options
    probe, (images, _) = lab.teacher(subject), lab.images(subject)
    wanted = min(options["samples"] or 1000, len(images))
    rows = np.sort(generator("lvsd-images", options["seed"]).permutation(len(images))[:wanted])
    draws = options["crops"] or 8
    definitions = (
        paper_definition(options["central"], draws, options["flip"]),
        varied_definition(draws, options["flip"]),
    )
    found = [asdict(lvsd(probe, images, rows, definition, options["seed"])) for definition in definitions]
    for drift in found:
        drift["percent_above_one"] = 100 * drift["share_above_one"]
    return {drift["definition"]: drift for drift in found}


def lvsd(probe: Probe, images: Pixels, rows: Ints, definition: Definition, seed: int) -> Drift:
    """Drift of the images `rows` under one definition."""
    if definition.draws < 2:
        raise UserError(f"a covariance needs two draws or more, found draws = {definition.draws}")
    weak = traces(probe, images, rows, definition.weak, definition.draws, "lvsd-weak", seed)
    strong = traces(probe, images, rows, definition.strong, definition.draws, "lvsd-strong", seed)
    return summary(weak, strong, definition)


def traces(probe: Probe, images: Pixels, rows: Ints, rule: CropRule, draws: int, stream: str, seed: int) -> Floats:
    """(n,) Tr(Sigma) over `draws` crops of each of the images `rows`."""
    drawn = [draw_crops(rule, stream, seed, k, len(images), source_size(images)) for k in range(draws)]
    parts = []
    for part in chunks(rows, max(FORWARD // draws, 1)):
        logits = [probe.crop_logits(images, part, crops.take(part)) for crops in drawn]
        parts.append(total_variance(torch.stack(logits).softmax(dim=2)).cpu())
    return torch.cat(parts).numpy()


def summary(weak: Floats, strong: Floats, definition: Definition) -> Drift:
    """The paper's columns and more, from the traces (n,) of each image."""
    ratio = strong / (weak + definition.eps)
    positive = ratio[ratio > 0]
    log_ratio = np.log10(positive)
    return Drift(
        definition=definition.name,
        weak=weak.tolist(),
        strong=strong.tolist(),
        log_ratio=log_ratio.tolist(),
        mean_weak=float(weak.mean()),
        mean_strong=float(strong.mean()),
        mean_log_ratio=float(log_ratio.mean()) if len(positive) else None,
        log_mean_ratio=float(np.log10(ratio.mean())) if len(positive) else None,
        quantiles={f"{q:g}": float(np.quantile(log_ratio, q)) for q in QUANTILES} if len(positive) else {},
        share_above_one=float((ratio > 1).mean()),
        without_ratio=int(len(ratio) - len(positive)),
    )
