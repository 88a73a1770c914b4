"""One look for all figures: colours that colour-blind readers can tell apart, each method always in its own."""

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hald.files import write_atomic

INK, FAINT, GRID = "#1c2733", "#6b7785", "#dde3ea"
FORMATS = ("png", "svg", "pdf")

STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "legend.frameon": False,
    "savefig.dpi": 160,
    "savefig.facecolor": "white",
    "svg.hashsalt": "hald",  # the same figure is the same bytes
    "pdf.fonttype": 42,
}

# Okabe and Ito's palette without its yellow, which is too light for lines.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)
GREY = "#7f8a96"
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

# Evaluations and image sets are never in one legend, so each uses the whole palette.
EVALUATIONS = {
    "hald": BLUE,
    "soft_only": VERMILION,
    "hard_only": BLACK,
    "lpld": GREEN,
    "gift": PURPLE,
    "lpqld": ORANGE,
    "hald_matched": SKY,
}
IMAGE_SETS = {"fadrm": BLUE, "fadrm_plus": SKY, "rded": GREEN, "sre2l": ORANGE, "lpld": PURPLE, "real": GREY}
NAMES = {
    "hald": "HALD",
    "soft_only": "Soft-Only",
    "hard_only": "Hard-Only",
    "lpld": "LPLD",
    "gift": "GIFT",
    "lpqld": "LPQLD",
    "hald_matched": "HALD, matched (T²)",
    "hald_aligned": "HALD, aligned",
    "hald_reset": "HALD, optimiser reset",
    "hald_scaled": "HALD, scaled memory",
    "hald_adaptive": "HALD, adaptive",
    "fadrm": "FADRM",
    "fadrm_plus": "FADRM+",
    "rded": "RDED",
    "sre2l": "SRe2L",
    "sre2lpp": "SRe2L++",
    "cvdd": "CV-DD",
    "real": "Real images",
    "resnet18": "ResNet-18",
    "mobilenet_v2": "MobileNetV2",
    "shufflenet_v2_x1_0": "ShuffleNetV2",
}
STAGES = {"soft": "#ffffff", "hard": "#f3e3d3"}  # backgrounds

P = ParamSpec("P")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw with the common style, and leave matplotlib's settings alone otherwise."""

    @functools.wraps(draw)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return wrapper


def name_of(key: str) -> str:
    """How a method is written in figures."""
    return NAMES.get(key, key.replace("_", " "))


def looks(keys: Iterable[str], fixed: Mapping[str, str] = EVALUATIONS) -> dict[str, tuple[str, str]]:
    """Colour and marker of each method: its own if it has one, else the next that no method here uses."""
    wanted = list(dict.fromkeys(keys))
    taken = {fixed[key] for key in wanted if key in fixed}
    free = itertools.cycle([colour for colour in PALETTE if colour not in taken] or PALETTE)
    colours = [fixed.get(key) or next(free) for key in wanted]
    return dict(zip(wanted, zip(colours, itertools.cycle(MARKERS)), strict=True))


def panels(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, list[list[Axes]]]:
    """A figure of rows x columns panels, each of the given size in inches."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, [list(row) for row in axes]


def legend_above(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all panels, in rows above them."""
    entries: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    columns = max(1, min(len(entries), int(figure.get_figwidth() // 1.7)))
    figure.legend(list(entries.values()), list(entries), loc="outside upper left", ncols=columns)


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `stem`.png, .svg and .pdf, each whole or not at all; the same figure gives the same bytes."""
    with matplotlib.rc_context(STYLE):
        for kind in FORMATS:
            no_date: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
            write_atomic(
                stem.with_name(f"{stem.name}.{kind}"),
                functools.partial(figure.savefig, format=kind, metadata=no_date),
            )
    return [stem.with_name(f"{stem.name}.{kind}") for kind in FORMATS]
