"""The law of the variance of a mean label."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from hald.report.figure import Material
from hald.report.style import IMAGE_SETS, looks, name_of, panels, styled

Result = Mapping[str, Any]


def draw(material: Material) -> Figure:
    """Measured and expected variance of each image set."""
    return variance_law({name: found["variance"] for name, found in material.by("images").items()})


@styled
def variance_law(results: Mapping[str, Sequence[Result]]) -> Figure:
    """Variance of the mean of s labels against Tr(Σ) / s: label store -> VariancePoints."""
    figure, rows = panels(1, 1, 4.4, 3.3)
    ax = rows[0][0]
    for name, (colour, marker) in looks(results, IMAGE_SETS).items():
        s = [point["s"] for point in results[name]]
        ax.plot(
            s, [point["expected"] for point in results[name]], color=colour, lw=1, label=f"Tr(Σ)/s, {name_of(name)}"
        )
        measured, error = ([point[field] for point in results[name]] for field in ("measured", "error"))
        ax.errorbar(
            s, measured, error, color=colour, marker=marker, ls="", capsize=3, label=f"measured, {name_of(name)}"
        )
    sizes = sorted({point["s"] for points in results.values() for point in points})
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("Labels averaged, s")
    ax.set_ylabel(r"$E\,\Vert\hat{p}_s-\bar{p}\Vert^2$")
    ax.legend(loc="lower left", fontsize=8.5)
    return figure
