"""How many points one evaluation gains over another."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from hald.errors import UserError
from hald.report.figure import Material
from hald.report.points import SLC, Point, single, spread
from hald.report.style import IMAGE_SETS, INK, legend_above, looks, name_of, panels, styled


def draw(material: Material) -> Figure:
    """HALD over soft labels alone."""
    return gain(material.points())


@styled
def gain(points: Sequence[Point], ours: str = "hald", base: str = "soft_only") -> Figure:
    """Top-1 points of `ours` over `base`: a group per SLC, a bar per image set; whiskers join both spreads."""
    found = gains(points, ours, base)
    if not found:
        raise UserError(f"no image set has both {ours} and {base} at one SLC; run the missing cells first")
    slcs = sorted({slc for _, slc in found})
    style = looks((images for images, _ in found), IMAGE_SETS)
    width = 0.8 / len(style)
    figure, rows = panels(1, 1, max(4.2, 1.4 + 0.55 * len(slcs) * max(len(style), 2)), 3.3)
    ax = rows[0][0]
    for number, (images, (colour, _)) in enumerate(style.items()):
        here = [(i, *found[images, slc]) for i, slc in enumerate(slcs) if (images, slc) in found]
        at, height, whiskers = (np.array(part) for part in zip(*here, strict=True))
        at = at + (number - (len(style) - 1) / 2) * width
        ax.bar(at, height, width * 0.9, color=colour, alpha=0.85, label=name_of(images))
        ax.errorbar(at, height, whiskers, fmt="none", ecolor=INK, elinewidth=1, capsize=2)
        for a, value, whisker in zip(at, height, whiskers, strict=True):
            above = value >= 0
            place = value + whisker if above else value - whisker
            offset, anchor = ((0, 3), "bottom") if above else ((0, -3), "top")
            ax.annotate(
                f"{value:+.1f}".replace("-", "−"),
                (a, place),
                offset,
                textcoords="offset points",
                ha="center",
                va=anchor,
                size=8,
            )
    ax.axhline(0, color=INK, lw=1)
    ax.margins(y=0.15)
    ax.grid(axis="x", visible=False)
    ax.set_xticks(range(len(slcs)), [f"{slc:g}" for slc in slcs])
    ax.set_xlabel(SLC)
    ax.set_ylabel(f"{name_of(ours)} − {name_of(base)} (points)")
    legend_above(figure, rows[0])
    return figure


def gains(points: Sequence[Point], ours: str, base: str) -> dict[tuple[str, float], tuple[float, float]]:
    """(images, SLC) -> difference of the means and the root of the summed variances, where both are there."""
    cells = single([point for point in points if point["evaluation"] in (ours, base)], "slc_effective")
    found = {}
    for images, slc in dict.fromkeys(key[:2] for key in cells):
        first, second = (cells.get((images, slc, evaluation)) for evaluation in (ours, base))
        if first and second:
            both = math.hypot(spread(first), spread(second))
            found[images, slc] = (first["top1_mean"] - second["top1_mean"], both)
    return found
