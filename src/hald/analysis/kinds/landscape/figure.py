"""Contours of the loss around two students."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hald.report.figure import Material
from hald.report.style import VERMILION, name_of, panels, styled

Result = Mapping[str, Any]


def draw(material: Material) -> Figure:
    """A row per split, a column per evaluation."""
    found = material.by("evaluation").items()
    return landscapes({(split, name): grids[split] for split in ("train", "test") for name, grids in found})


@styled
def landscapes(results: Mapping[tuple[str, str], Result], levels: int = 20) -> Figure:
    """Contours of the loss around networks: `results` (split, method) -> Landscape; a row per split, one scale each."""
    splits, methods = (list(dict.fromkeys(key[i] for key in results)) for i in (0, 1))
    figure, rows = panels(len(splits), len(methods), 3.3, 2.9, sharex=True, sharey=True)
    for split, axes in zip(splits, rows, strict=True):
        grids = [np.array(results[split, method]["losses"]) for method in methods]
        heights = np.linspace(min(g.min() for g in grids), max(g.max() for g in grids), levels + 1)
        for ax, method, grid in zip(axes, methods, grids, strict=True):
            drawn = _contours(ax, results[split, method], grid, heights)
            centre, sharpness = results[split, method]["centre"], results[split, method]["sharpness"]
            ax.set_title(f"{name_of(method)}, {split}", pad=16)
            ax.text(0, 1.02, f"centre {centre:.2f}, sharpness {sharpness:.2f}", transform=ax.transAxes, size=8.5)
        bar = figure.colorbar(drawn, ax=axes, ticks=MaxNLocator(6))
        bar.set_label(f"Cross-entropy, {split}")
        axes[0].set_ylabel("random direction")
    for ax in rows[-1]:
        ax.set_xlabel("away from the other network")
    return figure


def _contours(ax: Axes, result: Result, grid: "np.ndarray[Any, Any]", heights: "np.ndarray[Any, Any]") -> Any:
    """Filled contours of one grid; the first direction runs to the right."""
    steps = result["steps"]
    if heights[-1] <= heights[0]:
        heights = heights[0] + np.array([0.0, 1e-9])
    drawn = ax.contourf(steps, steps, grid.T, levels=heights, cmap="cividis")
    ax.contour(steps, steps, grid.T, levels=heights, colors="white", linewidths=0.4, alpha=0.7)
    ax.plot(0, 0, marker="+", color=VERMILION, ms=9, mew=1.8)
    ax.grid(visible=False)
    ax.set_aspect("equal")
    ax.set_xticks([-1, 0, 1])
    ax.set_yticks([-1, 0, 1])
    return drawn
