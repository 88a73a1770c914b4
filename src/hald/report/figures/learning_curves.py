"""Accuracy and training loss over the epochs of trainings."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hald.errors import UserError
from hald.files import read_json
from hald.report.figure import Found, Material
from hald.report.style import FAINT, STAGES, legend_above, looks, name_of, panels, styled

Array = NDArray[np.float64]


def draw(material: Material) -> Figure:
    """A line per evaluation."""
    return learning_curves(records(material))


def records(material: Material) -> dict[str, list[Found]]:
    """Result records of the seeds of every evaluation; the table has to leave one run for each."""
    runs: dict[str, str] = {}
    for cell in material.table.cells:
        name = cell.place["evaluation"]
        if runs.setdefault(name, cell.run) != cell.run:
            raise UserError(
                f"figure '{material.spec.id}' has two runs of '{name}'; choose with `where`, e.g. {{images: rded}}"
            )
    paths = {
        name: [material.sources[run] / f"seed-{seed}.json" for seed in range(material.table.seeds)]
        for name, run in runs.items()
    }
    return {name: [read_json(path) for path in seeds if path.is_file()] for name, seeds in paths.items()}


@styled
def learning_curves(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Accuracy and training loss over epochs; `runs`: evaluation -> result records of its seeds.

    Lines are means over seeds, thin ones single seeds. The background shows the stages of the run with most of them.
    """
    runs = {name: records for name, records in runs.items() if records}
    if not runs:
        raise UserError("there is no finished run to draw learning curves of")
    figure, rows = panels(2, 1, 5.6, 2.2, sharex=True, gridspec_kw={"height_ratios": [3, 2]})
    accuracy, loss = rows[0][0], rows[1][0]
    for name, (colour, marker) in looks(runs).items():
        epochs, values, breaks = _series(runs[name])
        for ax, field, gaps in ((accuracy, "top1", []), (loss, "loss", breaks)):
            for one in values[field] if len(values[field]) > 1 else []:
                ax.plot(*_broken(epochs, one, gaps), color=colour, lw=0.8, alpha=0.5)
            mean = values[field].mean(axis=0)
            ax.plot(*_broken(epochs, mean, gaps), color=colour, marker=marker, ms=3.5, label=name_of(name))
    staged = max(runs, key=lambda name: len(runs[name][0]["stage_starts"]))
    _shade(rows[0] + rows[1], runs[staged][0])
    accuracy.set_ylabel("Top-1 accuracy (%)")
    loss.set_ylabel("Training loss")
    loss.set_yscale("log")
    loss.set_xlabel(f"Epoch (shaded: hard stage of {name_of(staged)})" if _has_hard(runs[staged][0]) else "Epoch")
    legend_above(figure, [accuracy])
    return figure


def _series(records: Sequence[Mapping[str, Any]]) -> tuple[list[int], dict[str, Array], list[int]]:
    """Epochs that all seeds have, (seeds, epochs) accuracy and loss, and before which epochs the loss is another."""
    curves = [{point["epoch"]: point for point in record["curve"]} for record in records]
    epochs = sorted(set.intersection(*(set(curve) for curve in curves)))
    values = {
        field: np.array([[curve[epoch][field] for epoch in epochs] for curve in curves]) for field in ("top1", "loss")
    }
    kinds = [curves[0][epoch]["stage"] for epoch in epochs]
    return epochs, values, [i for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1]]


def _broken(epochs: Sequence[int], values: Array, gaps: Sequence[int]) -> tuple[Array, Array]:
    """A line that is interrupted before the points `gaps`."""
    return np.insert(np.array(epochs, dtype=float), gaps, np.nan), np.insert(values.astype(float), gaps, np.nan)


def _kinds(record: Mapping[str, Any]) -> list[str]:
    return [stage["kind"] for stage in record["spec"]["stages"]]


def _has_hard(record: Mapping[str, Any]) -> bool:
    return "hard" in _kinds(record) and len(record["stage_starts"]) > 1


def stage_spans(record: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Kind of every stage of a result record, and the epochs before its first and after its last."""
    borders = [*record["stage_starts"], record["curve"][-1]["epoch"]]
    return [(kind, a, b) for kind, (a, b) in zip(_kinds(record), itertools.pairwise(borders), strict=False)]


def _shade(axes: Sequence[Axes], record: Mapping[str, Any]) -> None:
    spans = stage_spans(record)
    for ax in axes:
        ax.set_xlim(0, spans[-1][2])
        for kind, start, end in spans:
            ax.axvspan(start, end, color=STAGES[kind], lw=0, zorder=0)
    for kind, start, end in spans if len(spans) > 1 else []:
        transform = axes[0].get_xaxis_transform()
        axes[0].text((start + end) / 2, 0.02, kind, transform=transform, ha="center", color=FAINT, size=9)
