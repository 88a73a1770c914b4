"""AdamW's steps and the logits along a staged training."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from hald.report.figure import Material
from hald.report.style import FAINT, INK, looks, name_of, panels, styled

Result = Mapping[str, Any]

STEP_AXES = {"size": "RMS of a step / learning rate", "logits": "RMS of the logits\n(dotted: the teacher's)"}


def draw(material: Material) -> Figure:
    """A column of panels per evaluation."""
    return update_sizes(material.by("evaluation"))


@styled
def update_sizes(results: Mapping[str, Result]) -> Figure:
    """AdamW's steps and the logits along a staged training: evaluation -> Updates; a column of panels each.

    Results of earlier code, which a study may hold, have no logits.
    """
    shown = [name for name in STEP_AXES if all(name in found for found in results.values())]
    figure, rows = panels(len(shown), len(results), 3.4, 2.6)
    for column, (evaluation, (colour, _)) in enumerate(looks(results).items()):
        found = results[evaluation]
        epochs = (np.arange(len(found["size"])) + 1) / found["steps_per_epoch"]
        for row, name in zip(rows, shown, strict=True):
            row[column].plot(epochs, found[name], color=colour, lw=0.8)
            row[column].set_yscale("log")
            row[column].set_xlim(0, epochs[-1])
            for start in found["starts"][1:]:
                row[column].axvline(start, color=INK, lw=1, ls="--")
            if name == "logits":
                row[column].axhline(found["teacher"], color=FAINT, lw=1, ls=":")
        rows[0][column].set_title(name_of(evaluation))
        rows[-1][column].set_xlabel("Epoch (dashed: change of stage)")
    for row, name in zip(rows, shown, strict=True):
        low, high = (f(ax.get_ylim()[i] for ax in row) for i, f in enumerate((min, max)))
        for ax in row:
            ax.set_ylim(low, high)
        row[0].set_ylabel(STEP_AXES[name])
    return figure
