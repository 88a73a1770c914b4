"""Figures from result records and table cells: accuracy over storage, gains, learning curves.

Points are rows of `hald.report.tables.cell_rows` (one per cell): `images`, `evaluation`, `slc_effective`,
`label_bytes`, `top1_mean`, `top1_std`, and where known `paper`, the published accuracy. Cells without a mean are left
out.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from hald.errors import UserError
from hald.report.style import FAINT, IMAGE_SETS, INK, STAGES, legend_above, looks, name_of, panels, styled

Point = Mapping[str, Any]
Array = NDArray[np.float64]
KIBI, MEBI = 2**10, 2**20
AXES = {"slc_effective": "Soft labels per class (SLC)", "steps": "Steps of the training"}


@styled
def accuracy_over(points: Sequence[Point], x: str = "slc_effective") -> Figure:
    """Top-1 over SLC, label bytes or steps: a panel per image set, a line per evaluation, hollow: published.

    What needs no soft labels is a level. Sets that have one place each, all different (codecs), share a panel.
    """
    known = [point for point in _single(points, x).values() if _known(point, x)]
    if not known:
        raise UserError("there is no finished cell to draw; run some of the table's cells first")
    label, unit = _axis(x, max(point[x] for point in known))
    sets = list(dict.fromkeys(point["images"] for point in known))
    places = {(point["images"], point[x]) for point in known}
    together = 1 < len(sets) == len(places) == len({place for _, place in places})
    style = looks(point["evaluation"] for point in known)
    shown = [known] if together else [[point for point in known if point["images"] == images] for images in sets]
    width = 6.0 if together else 4.2 if len(sets) == 1 else 3.2
    figure, rows = panels(1, len(shown), width, 3.3, sharey=True)
    for ax, mine in zip(rows[0], shown, strict=True):
        for evaluation, look in style.items():
            its = [point for point in mine if point["evaluation"] == evaluation]
            _line(ax, its, x, unit, *look, name_of(evaluation), "none" if together else "-")
        _log_axis(ax, [p[x] / unit for p in mine if p[x]])
        if together:
            _name_sets(ax, mine, x, unit)
        else:
            ax.set_title(name_of(mine[0]["images"]))
        ax.set_xlabel(label)
    rows[0][0].set_ylabel("Top-1 accuracy (%)")
    legend_above(figure, rows[0])
    return figure


def _axis(field: str, largest: float) -> tuple[str, int]:
    """Label of the axis of a point's field, and its unit."""
    if field in AXES:
        return AXES[field], 1
    name, unit = ("MiB", MEBI) if largest >= MEBI else ("KiB", KIBI)
    return f"Stored labels ({name}, measured)", unit


def _name_sets(ax: Axes, points: Sequence[Point], x: str, unit: float) -> None:
    """Write the name of each image set above its highest point."""
    highest = {point["images"]: point for point in sorted(points, key=_top)}
    for images, point in highest.items():
        ax.annotate(
            name_of(images), (point[x] / unit, _top(point)), (0, 4), textcoords="offset points", ha="center", size=9
        )
    ax.margins(y=0.12)


def _top(point: Point) -> float:
    return float(point["top1_mean"]) + _spread(point)


def _known(point: Point, field: str) -> bool:
    value = point.get(field)
    return value is not None and not math.isnan(value)


def _line(ax: Axes, points: list[Point], x: str, unit: float, colour: str, marker: str, name: str, line: str) -> None:
    """One evaluation: mean and spread over seeds; published values hollow and dashed."""
    points = sorted(points, key=lambda point: float(point[x]))
    if not points:
        return
    if points[0][x] == 0:
        mean, spread_of_it = points[0]["top1_mean"], _spread(points[0])
        ax.axhline(mean, color=colour, ls="--", lw=1.2, label=name)
        ax.axhspan(mean - spread_of_it, mean + spread_of_it, color=colour, alpha=0.08, lw=0)
        return
    at = [point[x] / unit for point in points]
    spread = [_spread(point) for point in points]
    means = [point["top1_mean"] for point in points]
    ax.errorbar(at, means, spread, color=colour, marker=marker, ls=line, capsize=2.5, elinewidth=1, label=name)
    printed = [(a, point["paper"]) for a, point in zip(at, points, strict=True) if _known(point, "paper")]
    if printed:
        ax.plot(*zip(*printed, strict=True), color=colour, marker=marker, mfc="white", ls=":", lw=1.2)
        ax.plot([], [], color=FAINT, marker="o", mfc="white", ls=":", lw=1.2, label="published")


def _log_axis(ax: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis with ticks at the values themselves, as many as can be read."""
    ax.set_xscale("log")
    ticks: list[float] = []
    for value in sorted(set(values)):
        if not ticks or value / ticks[-1] > 1.25:
            ticks.append(value)
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}" if value < 1000 else f"{value:,.0f}"))
    ax.margins(x=0.08)
    if len(ticks) == 1:
        ax.set_xlim(ticks[0] / 2, ticks[0] * 2)


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
        at, height, spread = (np.array(part) for part in zip(*here, strict=True))
        at = at + (number - (len(style) - 1) / 2) * width
        ax.bar(at, height, width * 0.9, color=colour, alpha=0.85, label=name_of(images))
        ax.errorbar(at, height, spread, fmt="none", ecolor=INK, elinewidth=1, capsize=2)
        for a, value, whisker in zip(at, height, spread, strict=True):
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
    ax.set_xlabel(AXES["slc_effective"])
    ax.set_ylabel(f"{name_of(ours)} − {name_of(base)} (points)")
    legend_above(figure, rows[0])
    return figure


def gains(points: Sequence[Point], ours: str, base: str) -> dict[tuple[str, float], tuple[float, float]]:
    """(images, SLC) -> difference of the means and the root of the summed variances, where both are there."""
    cells = _single([point for point in points if point["evaluation"] in (ours, base)], "slc_effective")
    found = {}
    for images, slc in dict.fromkeys(key[:2] for key in cells):
        first, second = (cells.get((images, slc, evaluation)) for evaluation in (ours, base))
        if first and second:
            spread = math.hypot(_spread(first), _spread(second))
            found[images, slc] = (first["top1_mean"] - second["top1_mean"], spread)
    return found


def _single(points: Sequence[Point], x: str) -> dict[tuple[str, float, str], Point]:
    """Finished cells by (images, x, evaluation). Different trainings at one place (IPCs, students) are not mixed up."""
    cells: dict[tuple[str, float, str], Point] = {}
    for point in points:
        key = (point["images"], point[x], point["evaluation"])
        if not _known(point, "top1_mean"):
            continue
        if key in cells and cells[key]["run"] != point["run"]:
            raise UserError(f"two cells for {key[0]}, {x} {key[1]:g}, {key[2]}; draw each IPC and student apart")
        cells[key] = point
    return cells


def _spread(point: Point) -> float:
    return float(point["top1_std"]) if _known(point, "top1_std") else 0.0


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
