"""Figures of the analyses, from their JSON results."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from hald.report.style import FAINT, IMAGE_SETS, INK, PALETTE, VERMILION, legend_above, looks, name_of, panels, styled

Result = Mapping[str, Any]


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


@styled
def gradient_similarity(results: Mapping[str, Result], sigma: float = 70.0) -> Figure:
    """Cosine of soft and hard gradients along training: image set -> Similarity; thin lines are single steps.

    Thick ones are smoothed over `sigma` steps, or a twentieth of a short training.
    """
    figure, rows = panels(1, 1, 5.4, 3.2)
    ax = rows[0][0]
    for name, (colour, _) in looks(results, IMAGE_SETS).items():
        series = np.array(results[name]["cosine"])
        epochs = (np.arange(len(series)) + 1) / results[name]["steps_per_epoch"]
        ax.plot(epochs, series, color=colour, lw=0.5, alpha=0.25)
        ax.plot(epochs, smoothed(series, min(sigma, len(series) / 20)), color=colour, lw=2.2, label=name_of(name))
    ax.axhline(0, color=INK, lw=1)
    ax.set_xlim(0, max(len(r["cosine"]) / r["steps_per_epoch"] for r in results.values()))
    ax.set_xlabel("Epoch")
    ax.set_ylabel("Cosine of soft and hard gradient")
    legend_above(figure, [ax])
    return figure


STEP_AXES = {"size": "RMS of a step / learning rate", "logits": "RMS of the logits\n(dotted: the teacher's)"}


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


def smoothed(series: NDArray[np.float64], sigma: float = 70.0) -> NDArray[np.float64]:
    """Gaussian smoothing over steps (n,), mirrored at the ends."""
    return np.asarray(gaussian_filter1d(np.asarray(series, dtype=np.float64), sigma), dtype=np.float64)


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


DEFINITIONS = {"paper": "Weak view fixed (as printed)", "varied": "Weak view varies (80–100 %)"}


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
