"""Histograms of the drift ratio."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from hald.report.figure import Material
from hald.report.style import FAINT, INK, legend_above, looks, name_of, panels, styled

Result = Mapping[str, Any]

DEFINITIONS = {"paper": "Weak view fixed (as printed)", "varied": "Weak view varies (80–100 %)"}


def draw(material: Material) -> Figure:
    """A panel per definition, a colour per teacher."""
    drifts = {name: [found["paper"], found["varied"]] for name, found in material.by("student").items()}
    return lvsd_histogram(drifts)


@styled
def lvsd_histogram(results: Mapping[str, Sequence[Result]], bins: int = 40) -> Figure:
    """Histograms of log10 R: teacher -> its Drift by every definition; a panel per definition, lines at medians."""
    definitions = list(dict.fromkeys(drift["definition"] for drifts in results.values() for drift in drifts))
    figure, rows = panels(1, len(definitions), 3.9, 3.2)
    style = looks(results)
    for ax, definition in zip(rows[0], definitions, strict=True):
        found = {name: [d for d in drifts if d["definition"] == definition] for name, drifts in results.items()}
        values = {name: drifts[0]["log_ratio"] for name, drifts in found.items() if drifts and drifts[0]["log_ratio"]}
        every = np.concatenate([*map(np.asarray, values.values()), [0.0]])
        edges = np.linspace(every.min(), every.max(), bins + 1).tolist()
        for name, ratios in values.items():
            colour = style[name][0]
            ax.hist(ratios, edges, color=colour, alpha=0.45, label=name_of(name))
            ax.axvline(float(np.median(ratios)), color=colour, lw=1.8, ls="--")
        ax.axvline(0, color=INK, lw=1)
        ax.annotate("R = 1", (0, 1), (3, -10), ax.get_xaxis_transform(), "offset points", size=8.5, color=FAINT)
        ax.set_title(DEFINITIONS.get(definition, definition))
        ax.set_xlabel("log₁₀ R (dashed: median)")
    rows[0][0].set_ylabel("Images")
    legend_above(figure, rows[0])
    return figure
