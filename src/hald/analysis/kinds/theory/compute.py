"""The paper's laws about s soft labels per image, checked on stored labels.

Views are drawn independently, so means over disjoint blocks of s successive views are independent copies of p_s. What
is measured comes from these blocks, what is expected from the single views; with dependent views the two would differ.
"""

from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from hald.analysis.labels_by_image import image_labels, image_logits, view_losses
from hald.analysis.subjects import Found, Lab
from hald.analysis.variance import total_variance
from hald.errors import UserError
from hald.numerics.random_streams import Floats, Ints

DEVIATION = 16 / (25 * 5**0.5)  # largest value of sqrt(theta) (1 - theta)^2, at theta = 1/5


@dataclass(frozen=True)
class VariancePoint:
    """Lemma: E||p_s - p_mean||^2 = Tr(Sigma) / s, means over images; `error` is that of measured - expected."""

    s: int
    measured: float
    expected: float
    error: float


@dataclass(frozen=True)
class InversionPoint:
    """How often the mean of s labels prefers the rival to the true class, and Cantelli's bound on that."""

    s: int
    measured: float
    bound: float
    above_bound: float  # share of images whose measured frequency lies above their bound


@dataclass(frozen=True)
class Inversion:
    """Class inversion for images whose mean label prefers the true class; the others have no bound."""

    points: list[InversionPoint]
    images: int
    already_inverted: int


@dataclass(frozen=True)
class DeviationPoint:
    """Theorem: E|L_s - L_ideal| >= sigma / sqrt(s) 16 / (25 sqrt 5) min(1 / kappa, 1/3), means over images."""

    s: int
    measured: float
    bound: float


def measure(lab: Lab, number: int) -> Found:
    """The laws on a store's labels; the deviation law with a student's losses."""
    subject = lab.spec.subjects[number]
    store, place = lab.store(subject), subject.place
    views = place["slc"] // place["ipc"]
    if views < 2:
        raise UserError(
            f"the laws compare labels of one image: SLC {place['slc']} at IPC {place['ipc']} gives {views} for each, "
            f"ask for slc: {2 * place['ipc']} or more"
        )
    labels = image_labels(store)
    p = image_logits(store, views, np.arange(store.header.count), lab.device).double().softmax(dim=2)
    return {
        "views": views,
        "variance": [asdict(point) for point in variance_law(p)],
        "inversion": asdict(inversion(p, labels)),
        "deviation": [asdict(point) for point in deviation_law(view_losses(lab.student(subject), store, views))],
    }


def block_sizes(views: int) -> list[int]:
    """1, 2, 4 .. as long as two blocks fit."""
    if views < 2:
        raise UserError(f"the laws compare labels of one image: two views or more are needed, found {views}")
    return [2**k for k in range(views.bit_length()) if 2 * 2**k <= views]


def block_means(values: Tensor, s: int) -> Tensor:
    """Means of s successive entries of the first dimension: (V, ...) -> (V // s, ...), a rest left out."""
    blocks = len(values) // s
    return torch.unflatten(values[: blocks * s], 0, (blocks, s)).mean(dim=1)


def variance_law(p: Tensor) -> list[VariancePoint]:
    """Variance of the mean of s labels against Tr(Sigma) / s, for labels p (V, n, C) of n images in V views.

    At s = 1 the two are the same by definition.
    """
    trace = total_variance(p.double())
    points = []
    for s in block_sizes(len(p)):
        measured, expected = total_variance(block_means(p.double(), s)), trace / s
        error = (measured - expected).std(correction=1) / len(trace) ** 0.5 if len(trace) > 1 else torch.zeros(())
        points.append(VariancePoint(s, float(measured.mean()), float(expected.mean()), float(error)))
    return points


def cantelli_bound(variance: Tensor, gap: Tensor, s: int) -> Tensor:
    """v / (v + gap^2) with v = variance / s: of P(mean of s differences <= 0) for a positive mean `gap`."""
    v = variance / s
    return v / (v + gap.square())


def inversion(p: Tensor, labels: Ints) -> Inversion:
    """Frequency and bound of class inversion for labels p (V, n, C); the rival is the strongest other class on average.

    The variance of p_y - p_c over views is S_yy + S_cc - 2 S_yc.
    """
    lead = lead_over_rival(p.double(), torch.from_numpy(labels).to(p.device))
    gap = lead.mean(dim=0)
    lead, right = lead[:, gap > 0], gap[gap > 0]
    points = []
    for s in block_sizes(len(p)) if len(right) else []:
        frequency = (block_means(lead, s) <= 0).double().mean(dim=0)
        bound = cantelli_bound(lead.var(dim=0, correction=1), right, s)
        above = (frequency > bound).double().mean()
        points.append(InversionPoint(s, float(frequency.mean()), float(bound.mean()), float(above)))
    return Inversion(points, len(right), len(gap) - len(right))


def lead_over_rival(p: Tensor, labels: Tensor) -> Tensor:
    """(V, n) p_y - p_c for the class c that is strongest on average after the true class y."""
    own = labels.expand(len(p), -1)[..., None]
    mean = p.mean(dim=0).scatter(1, labels[:, None], -1.0)
    rival = mean.argmax(dim=1).expand(len(p), -1)[..., None]
    return (p.gather(2, own) - p.gather(2, rival))[..., 0]


def deviation_bound(sigma: Floats, kappa: Floats, s: int) -> Floats:
    """Lower bound of E|L_s - L_ideal| for losses of standard deviation sigma and kurtosis kappa, both (n,)."""
    return np.asarray(sigma / s**0.5 * DEVIATION * np.minimum(1 / kappa, 1 / 3))


def deviation_law(losses: Floats) -> list[DeviationPoint]:
    """Deviation of the mean loss over s views from that over all, against its lower bound, for losses (V, n).

    The mean over all V views stands for the ideal loss, which makes the measured deviation smaller than it is.
    """
    centred = losses - losses.mean(axis=0)
    varies = centred.std(axis=0) > 0
    centred = centred[:, varies]
    sigma = centred.std(axis=0)
    kappa = (centred**4).mean(axis=0) / sigma**4
    points = []
    for s in block_sizes(len(losses)) if varies.any() else []:
        measured = block_means(torch.from_numpy(centred), s).abs().mean()
        points.append(DeviationPoint(s, float(measured), float(deviation_bound(sigma, kappa, s).mean())))
    return points
