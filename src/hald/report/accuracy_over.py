"""Accuracy over what labels or training cost: what the figures of this form share."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from hald.errors import UserError
from hald.report.points import SLC, Point, known, single, spread
from hald.report.style import FAINT, legend_above, looks, name_of, panels, styled

KIBI, MEBI = 2**10, 2**20
AXES = {"slc_effective": SLC, "steps": "Steps of the training"}


@styled
def accuracy_over(points: Sequence[Point], x: str = "slc_effective") -> Figure:
    """Top-1 over SLC, label bytes or steps: a panel per image set, a line per evaluation, hollow: published.

    What needs no soft labels is a level. Sets that have one place each, all different (codecs), share a panel.
    """
    finished = [point for point in single(points, x).values() if known(point, x)]
    if not finished:
        raise UserError("there is no finished cell to draw; run some of the table's cells first")
    label, unit = _axis(x, max(point[x] for point in finished))
    sets = list(dict.fromkeys(point["images"] for point in finished))
    places = {(point["images"], point[x]) for point in finished}
    together = 1 < len(sets) == len(places) == len({place for _, place in places})
    style = looks(point["evaluation"] for point in finished)
    shown = [finished] if together else [[point for point in finished if point["images"] == images] for images in sets]
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
    return float(point["top1_mean"]) + spread(point)


def _line(ax: Axes, points: list[Point], x: str, unit: float, colour: str, marker: str, name: str, line: str) -> None:
    """One evaluation: mean and spread over seeds; published values hollow and dashed."""
    points = sorted(points, key=lambda point: float(point[x]))
    if not points:
        return
    if points[0][x] == 0:
        mean, around = points[0]["top1_mean"], spread(points[0])
        ax.axhline(mean, color=colour, ls="--", lw=1.2, label=name)
        ax.axhspan(mean - around, mean + around, color=colour, alpha=0.08, lw=0)
        return
    at = [point[x] / unit for point in points]
    spreads = [spread(point) for point in points]
    means = [point["top1_mean"] for point in points]
    ax.errorbar(at, means, spreads, color=colour, marker=marker, ls=line, capsize=2.5, elinewidth=1, label=name)
    printed = [(a, point["paper"]) for a, point in zip(at, points, strict=True) if known(point, "paper")]
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
