"""Cosine of soft and hard gradients along a training."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from hald.report.figure import Material
from hald.report.style import IMAGE_SETS, INK, legend_above, looks, name_of, panels, styled

Result = Mapping[str, Any]


def draw(material: Material) -> Figure:
    """A line per image set."""
    return gradient_similarity(material.by("images"))


@styled
def gradient_similarity(results: Mapping[str, Result], sigma: float = 70.0) -> Figure:
    """Cosine of soft and hard gradients along training: image set -> Similarity; thin lines are single steps.

    Thick ones are smoothed over `sigma` steps, or a twentieth of a short training.
    """
    figure, rows = panels(1, 1, 5.4, 3.2)
    ax = rows[0][0]
    for name, (colour, _) in looks(results, IMAGE_SETS).items():
        series = np.array(results[name]["cosine"])
        epochs = (np.arange(len(series)) + 1) / results[name]["steps_per_epoch"]
        ax.plot(epochs, series, color=colour, lw=0.5, alpha=0.25)
        ax.plot(epochs, smoothed(series, min(sigma, len(series) / 20)), color=colour, lw=2.2, label=name_of(name))
    ax.axhline(0, color=INK, lw=1)
    ax.set_xlim(0, max(len(r["cosine"]) / r["steps_per_epoch"] for r in results.values()))
    ax.set_xlabel("Epoch")
    ax.set_ylabel("Cosine of soft and hard gradient")
    legend_above(figure, [ax])
    return figure


def smoothed(series: NDArray[np.float64], sigma: float = 70.0) -> NDArray[np.float64]:
    """Gaussian smoothing over steps (n,), mirrored at the ends."""
    return np.asarray(gaussian_filter1d(np.asarray(series, dtype=np.float64), sigma), dtype=np.float64)
