"""Figures: what is drawn is what was given, in fixed colours, and files are the same every time."""

import math
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

from hald.analysis.kinds.drift import figure as drift
from hald.analysis.kinds.embedding.figure import embeddings
from hald.analysis.kinds.gradients.figure import gradient_similarity
from hald.analysis.kinds.landscape.figure import landscapes
from hald.analysis.kinds.lvsd.figure import lvsd_histogram
from hald.analysis.kinds.theory.figure import variance_law
from hald.errors import UserError
from hald.report import style
from hald.report.accuracy_over import accuracy_over
from hald.report.figures import gain, learning_curves


def point(images: str, evaluation: str, slc: float, top1: float | None, **more: Any) -> dict[str, Any]:
    cell = {"images": images, "evaluation": evaluation, "slc_effective": slc, "label_bytes": int(slc * 2**20)}
    cell["run"] = f"{evaluation}-{slc}-{top1}"
    return cell | {"top1_mean": top1, "top1_std": None, "paper": None} | more


POINTS = [
    point("rded", "soft_only", 50.0, 20.0, top1_std=0.3),
    point("rded", "hald", 50.0, 26.5, top1_std=0.4, paper=27.0),
    point("rded", "soft_only", 10.0, 11.0),
    point("rded", "hald", 10.0, None),
    point("real", "soft_only", 50.0, math.nan),
    point("real", "hald", 50.0, 15.0),
]


def lines(ax: Any, label: str) -> list[Any]:
    handles, labels = ax.get_legend_handles_labels()
    return [handle for handle, name in zip(handles, labels, strict=True) if name == label]


def test_files_are_written_in_three_formats_and_are_reproducible(tmp_path: Path) -> None:
    first, second = (style.save(accuracy_over(POINTS), tmp_path / name / "a.b") for name in ("x", "y"))
    assert [path.name for path in first] == ["a.b.png", "a.b.svg", "a.b.pdf"]
    assert [path.read_bytes()[:4] for path in first] == [b"\x89PNG", b"<?xm", b"%PDF"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["a.b.pdf", "a.b.png", "a.b.svg"]


def test_drawing_leaves_matplotlibs_settings_alone() -> None:
    before = matplotlib.rcParams["axes.spines.top"]
    accuracy_over(POINTS)
    assert matplotlib.rcParams["axes.spines.top"] == before


def test_methods_keep_their_colours_and_no_two_share_one() -> None:
    alone, among = style.looks(["hald"]), style.looks(["gift", "new", "soft_only", "other", "hald"])
    assert alone["hald"][0] == among["hald"][0] == style.BLUE
    assert len({colour for colour, _ in among.values()}) == 5
    assert len({marker for _, marker in among.values()}) == 5
    for fixed in (style.EVALUATIONS, style.IMAGE_SETS):
        assert len(set(fixed.values())) == len(fixed)


@pytest.mark.parametrize(("x", "expected"), [("slc_effective", [10.0, 50.0]), ("label_bytes", [10.0, 50.0])])
def test_accuracy_is_drawn_in_order_without_missing_cells(x: str, expected: list[float]) -> None:
    figure = accuracy_over(POINTS, x)
    rded, real = figure.axes
    soft = lines(rded, "Soft-Only")[0].lines[0]
    assert soft.get_xdata().tolist() == pytest.approx(expected)
    assert soft.get_ydata().tolist() == [11.0, 20.0]
    assert soft.get_color() == style.VERMILION
    assert lines(rded, "HALD")[0].lines[0].get_ydata().tolist() == [26.5]
    assert lines(real, "Soft-Only") == []
    published = [line for line in rded.lines if line.get_linestyle() == ":" and len(line.get_xdata())]
    assert [line.get_ydata().tolist() for line in published] == [[27.0]]
    assert [tick for tick in rded.get_xticks()] == pytest.approx(expected)  # noqa: C416


def test_what_needs_no_labels_is_a_level() -> None:
    """One training, in the rows of two SLCs."""
    figure = accuracy_over([*POINTS, *[point("rded", "hard_only", 0.0, 24.0)] * 2])
    rded = figure.axes[0]
    (level,) = [line for line in rded.lines if line.get_label() == "Hard-Only"]
    assert list(level.get_ydata()) == [24.0, 24.0]
    assert list(level.get_xdata()) == [0, 1]  # the whole width
    assert min(rded.get_xticks()) == 10


def test_sets_with_one_place_each_share_a_panel_and_are_named() -> None:
    """Codecs at one SLC: 64 KiB and 16 KiB of labels; bars end at 21 and 26."""
    places = {"u8": (64, 20.0), "u4": (16, 25.0)}
    codecs = [
        point(images, evaluation, 50.0, top1 - less, label_bytes=size * 2**10, top1_std=1.0 - less)
        for images, (size, top1) in places.items()
        for evaluation, less in (("hald", 0.0), ("soft_only", 1.0))
    ]
    (ax,) = accuracy_over(codecs, "label_bytes").axes
    drawn = lines(ax, "HALD")[0].lines[0]
    assert (drawn.get_xdata().tolist(), drawn.get_linestyle()) == ([16.0, 64.0], "None")
    assert ax.get_xlabel() == "Stored labels (KiB, measured)"
    assert {text.get_text(): text.xy for text in ax.texts} == {"u8": (64.0, 21.0), "u4": (16.0, 26.0)}
    assert len(accuracy_over(codecs, "slc_effective").axes) == 2  # both at SLC 50: apart
    level = [point(images, "hard_only", 0.0, 9.0, label_bytes=0) for images in places]
    assert len(accuracy_over([*codecs, *level], "label_bytes").axes) == 2


def test_nothing_to_draw_and_mixed_up_cells_are_refused() -> None:
    with pytest.raises(UserError, match="no finished cell"):
        accuracy_over([POINTS[3]])
    with pytest.raises(UserError, match="two cells for rded, slc_effective 50, hald"):
        accuracy_over([*POINTS, POINTS[1] | {"run": "other"}])
    with pytest.raises(UserError, match="both hald and soft_only"):
        gain.gain(POINTS[2:])
    with pytest.raises(UserError, match="no finished run"):
        learning_curves.learning_curves({"hald": []})


def test_gain_by_hand() -> None:
    assert gain.gains(POINTS, "hald", "soft_only") == {("rded", 50.0): pytest.approx((6.5, 0.5))}
    ax = gain.gain(POINTS).axes[0]
    assert [bar.get_height() for bar in ax.patches] == [6.5]
    assert [text.get_text() for text in ax.texts] == ["+6.5"]
    worse = gain.gain([point("rded", "soft_only", 5.0, 9.0), point("rded", "hald", 5.0, 7.0)]).axes[0]
    assert [text.get_text() for text in worse.texts] == ["−2.0"]


def record(kinds: list[str], starts: list[int], top1: float) -> dict[str, Any]:
    def kind(epoch: int) -> str:
        return kinds[sum(start < epoch for start in starts) - 1]

    curve = [
        {"epoch": e, "stage": kind(e), "loss": 2.0 if kind(e) == "hard" else 0.01, "top1": top1 + e}
        for e in range(10, 61, 10)
    ]
    return {"spec": {"stages": [{"kind": k} for k in kinds]}, "stage_starts": starts, "curve": curve}


def test_learning_curves_are_means_with_shaded_stages_and_broken_losses() -> None:
    runs = {
        "soft_only": [record(["soft"], [0], 0.0)],
        "hald": [record(["soft", "hard", "soft"], [0, 20, 40], top1) for top1 in (5.0, 7.0)],
    }
    upper, lower = learning_curves.learning_curves(runs).axes
    assert lines(upper, "HALD")[0].get_ydata().tolist() == [16.0, 26.0, 36.0, 46.0, 56.0, 66.0]
    loss = lines(lower, "HALD")[0].get_ydata()
    assert np.isnan(loss).nonzero()[0].tolist() == [2, 5]
    assert learning_curves.stage_spans(runs["hald"][0]) == [("soft", 0, 20), ("hard", 20, 40), ("soft", 40, 60)]
    shaded = [p for p in lower.patches if matplotlib.colors.to_hex(p.get_facecolor()) == style.STAGES["hard"]]
    assert [(p.get_x(), p.get_width()) for p in shaded] == [(20, 20)]
    assert lower.get_xlabel() == "Epoch (shaded: hard stage of HALD)"
    alone = learning_curves.learning_curves({"soft_only": runs["soft_only"]})
    assert alone.axes[1].get_xlabel() == "Epoch"


def surface(offset: float) -> dict[str, Any]:
    steps = np.linspace(-1, 1, 5)
    losses = offset + steps[:, None] ** 2 + 0.1 * steps[None, :]
    return {"steps": steps.tolist(), "losses": losses.tolist(), "centre": offset, "sharpness": 2.0}


def test_landscapes_of_a_split_share_their_levels() -> None:
    results = {(s, m): surface(o) for s, m, o in (("train", "soft_only", 2.0), ("train", "hald", 1.0))}
    results |= {(s, m): surface(o) for s, m, o in (("test", "soft_only", 4.0), ("test", "hald", 3.0))}
    figure = landscapes(results)
    panels = [ax for ax in figure.axes if ax.get_title("left")]
    assert [ax.get_title("left") for ax in panels] == [
        "Soft-Only, train",
        "HALD, train",
        "Soft-Only, test",
        "HALD, test",
    ]
    levels = [ax.collections[0].levels for ax in panels]
    assert levels[0].tolist() == levels[1].tolist()
    assert levels[0][[0, -1]].tolist() == pytest.approx([0.9, 3.1])
    assert len(levels[0]) == 21
    assert "centre 1.00, sharpness 2.00" in [text.get_text() for text in panels[1].texts]


def test_a_landscapes_first_direction_runs_to_the_right() -> None:
    ax = landscapes({("train", "hald"): surface(0.0)}).axes[0]
    highest = ax.collections[0].get_paths()[-1].vertices  # a^2 is largest at the left and right edge, not at the top
    assert np.abs(highest[:, 0]).min() > 0.9


def test_gradient_similarity_is_smoothed_over_epochs() -> None:
    ax = gradient_similarity({"rded": {"cosine": [0.3] * 20, "steps_per_epoch": 5}}).axes[0]
    smooth = lines(ax, "RDED")[0]
    assert smooth.get_xdata()[-1] == 4
    assert smooth.get_ydata().tolist() == pytest.approx([0.3] * 20)


@pytest.mark.parametrize(("steps", "sigma"), [(40, 2.0), (2800, 70.0)])
def test_a_peak_is_smoothed_over_70_steps_or_a_twentieth(steps: int, sigma: float) -> None:
    """The height of a Gaussian of that width; thin and unsmoothed behind it what was measured."""
    series = np.zeros(steps)
    series[steps // 2] = 1.0
    ax = gradient_similarity({"rded": {"cosine": series.tolist(), "steps_per_epoch": 5}}).axes[0]
    thin, thick = ax.lines[:2]
    assert thin.get_ydata().max() == 1.0
    assert thick.get_ydata().max() == pytest.approx(1 / (sigma * np.sqrt(2 * np.pi)), rel=0.03)


def test_drift_histograms_have_a_panel_per_definition(rng: np.random.Generator) -> None:
    ratios = {name: rng.normal(size=50).tolist() for name in ("paper", "varied")}
    drifts = [{"definition": name, "log_ratio": values} for name, values in ratios.items()]
    figure = lvsd_histogram({"resnet18": drifts, "silent": [{"definition": "paper", "log_ratio": []}]})
    assert len(figure.axes) == 2
    for ax, name in zip(figure.axes, ratios, strict=True):
        assert sum(bar.get_height() for bar in ax.patches) == 50
        dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
        assert dashed[0].get_xdata()[0] == pytest.approx(np.median(ratios[name]))


def test_variance_law_shows_both_sides() -> None:
    points = [{"s": s, "measured": 0.31 / s, "expected": 0.3 / s, "error": 0.01} for s in (1, 2, 4)]
    ax = variance_law({"rded": points}).axes[0]
    assert lines(ax, "Tr(Σ)/s, RDED")[0].get_ydata() == pytest.approx([0.3, 0.15, 0.075])
    assert lines(ax, "measured, RDED")[0].lines[0].get_ydata() == pytest.approx([0.31, 0.155, 0.0775])


def test_embeddings_say_how_they_were_made() -> None:
    result = {"how": "pca", "points": [[0, 1], [2, 3], [4, 5]], "labels": [2, 0, 2]}
    result |= {"silhouette_features": 0.5, "silhouette_plane": 0.25}
    figure = embeddings({"hald": result}, ["cat", "dog", "owl"])
    ax = figure.axes[0]
    assert ax.get_xlabel() == "PCA 1"
    assert [part.get_offsets().tolist() for part in ax.collections] == [[[2, 3]], [[0, 1], [4, 5]]]
    assert ax.get_legend_handles_labels()[1] == ["cat", "owl"]
    assert ax.texts[0].get_text() == "silhouette 0.500 (features), 0.250 (plane)"


def test_drift_examples_show_boxes_crops_and_answers() -> None:
    answers = [{"name": "tabby, tabby cat, and more", "probability": 0.7}, {"name": "owl", "probability": 0.004}]
    crop = {"box": [2, 1, 4, 5], "own_share": 0.75, "top": answers}
    image, picture = np.zeros((8, 8, 3), np.uint8), np.full((8, 8, 3), 7, np.uint8)
    figure = drift.drift_examples([{"name": "owl", "crops": [crop]}], [image], [[picture]])
    whole, shown, _, bars = figure.axes
    box = whole.patches[0]
    assert (box.get_x(), box.get_y(), box.get_width(), box.get_height()) == (0.5, 1.5, 5, 4)
    assert shown.images[0].get_array().max() == 7
    assert shown.get_title("left") == "25 % mixed in"
    assert [text.get_text() for text in bars.texts] == ["tabby, tabby ca…", "70 %", "owl", "< 1 %"]
    assert [bar.get_width() for bar in bars.patches] == [0.7, 0.004]
    assert [matplotlib.colors.to_hex(bar.get_facecolor()) for bar in bars.patches] == [drift.WRONG, drift.RIGHT]
    with pytest.raises(UserError, match="no example"):
        drift.drift_examples([], [], [])
