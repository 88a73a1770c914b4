"""Students' last features in the plane."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from hald.report.figure import Material
from hald.report.style import PALETTE, name_of, panels, styled

Result = Mapping[str, Any]


def draw(material: Material) -> Figure:
    """A panel per evaluation."""
    found = material.by("evaluation")
    return embeddings(found, next(iter(found.values()))["classes"])


@styled
def embeddings(results: Mapping[str, Result], classes: Sequence[str]) -> Figure:
    """Students' features in the plane: method -> Embedding; `classes` are all class names."""
    figure, rows = panels(1, len(results), 3.6, 3.7)
    shown = sorted({label for result in results.values() for label in result["labels"]})
    for ax, (name, result) in zip(rows[0], results.items(), strict=True):
        points, labels = np.array(result["points"]), np.array(result["labels"])
        for number, label in enumerate(shown):
            colour = PALETTE[number % len(PALETTE)]
            marker = "ox^sD"[number // len(PALETTE) % 5]
            mine = points[labels == label]
            ax.scatter(mine[:, 0], mine[:, 1], s=14, color=colour, marker=marker, lw=1, label=classes[label])
        ax.set_title(name_of(name), pad=16)
        scores = f"silhouette {result['silhouette_features']:.3f} (features), {result['silhouette_plane']:.3f} (plane)"
        ax.text(0, 1.02, scores, transform=ax.transAxes, size=8)
        ax.set(xticks=[], yticks=[], xlabel=f"{result['how'].upper()} 1", ylabel=f"{result['how'].upper()} 2")
    if len(shown) <= 20:
        handles, names = rows[0][0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=min(len(shown), 10), fontsize=8.5)
    return figure
