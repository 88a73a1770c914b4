"""Every cell of demo, paper and study computes what it did when its plan was stored."""

import shutil
from pathlib import Path

import pytest

from conftest import ROOT
from planned_cells import Planned, differences, planned, read_stored, write_stored

# Fields that have another name today: kind.old -> new.
RENAMED: dict[str, str] = {}
# Experiments that have another name today.
MOVED = {"cpu_study": "studies/cpu/experiments/base"} | {
    f"cpu_study_{name}": f"studies/cpu/experiments/{name}"
    for name in ("cifar100", "codecs", "handover", "more", "teacher", "woof", "woof_shifted")
}


@pytest.fixture(scope="module")
def stored() -> Planned:
    return read_stored(RENAMED, MOVED)


def test_every_cell_computes_what_it_did(stored: Planned) -> None:
    found = differences(stored, planned(ROOT))
    assert not found, "cells that compute something else:\n" + "\n".join(found)


def test_the_stored_plan_has_all_kinds_of_work(stored: Planned) -> None:
    cells = [name for name in stored.shown if "[" in name]
    assert {name.partition(":")[0] for name in cells} == {"demo", "paper", *MOVED.values()}
    assert len(cells) > 1300
    kinds = {node["node"] for node in stored.nodes.values()}
    made = {"dataset", "teacher", "ranking", "statistics", "units", "images", "labels", "training", "analysis"}
    assert kinds == made


def test_a_changed_default_names_its_cells(stored: Planned, tmp_path: Path) -> None:
    """Two edits: a default of an evaluation, and the teacher of the demo."""
    for folder in ("config", "studies/cpu/experiments"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for file, old, new in (
        ("evaluations.yaml", "gift: {loss: gift}", "gift: {loss: {name: gift, weight: 0.2}}"),
        ("experiments/demo.yaml", "weight_decay: 0.0005", "weight_decay: 0.0004"),
    ):
        path = tmp_path / "config" / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    found = differences(stored, planned(tmp_path))
    assert len(found) == 2
    assert found[0].startswith("teacher.recipe.weight_decay was 0.0005, is 0.0004\n    demo: ")
    assert found[1].startswith("training.loss.options.weight was 0.1, is 0.2\n    studies/cpu/experiments/more: ")
    assert "demo: demo_baselines [gift | rded]" in found[1]
    assert "demo: demo_main [sre2l | soft_only]" in found[0]
    assert "paper: tab3_baselines [100 | gift]" in found[1]


def test_a_renamed_field_is_no_difference(stored: Planned, tmp_path: Path) -> None:
    renamed = Planned(
        {
            name: {"decay" if part == "eta" else part: v for part, v in node.items()}
            for name, node in stored.nodes.items()
        },
        stored.shown,
    )
    write_stored(renamed, tmp_path / "plan.json.xz")
    assert any("training.eta" in line for line in differences(stored, renamed))
    assert differences(read_stored({"training.decay": "eta"}, {}, tmp_path / "plan.json.xz"), stored) == []


def test_a_cell_that_is_gone_or_new_is_named(stored: Planned) -> None:
    name = next(iter(stored.shown))
    fewer = Planned(stored.nodes, {other: value for other, value in stored.shown.items() if other != name})
    assert differences(stored, fewer) == [f"is gone\n    {name}"]
    assert differences(fewer, stored) == [f"is new\n    {name}"]
