"""Archived results, and documents that are made of them alone."""

import math
import re
import shutil
import time
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from conftest import ROOT, TINY_DEMO, copy_known
from hald.archive import collect, restore
from hald.cli import main
from hald.document import _ahead, _deviations, _difference, write_document
from hald.errors import UserError
from hald.files import read_json, write_json
from hald.plan import Plan, make_plan
from hald.specs.base import to_dict

PRINTED = ROOT / "config/paper/tables.yaml"
TEMPLATE = """# Found
{{table main}}
HALD {{cell main | rded 4 | hald}}, {{gain main | rded 4 | hald | rded 4 | soft_only}} points.
The paper has {{paper tab9_schedules | evaluation hald}} and {{paper tab3_baselines | evaluation gift, slc 200}}.
{{setting main | rded 4 | hald | steps}} steps, {{setting main | rded 4 | hald | lr}}
{{setting main | rded 4 | hald | first epochs}}, {{setting main | rded 4 | hald | hard epochs}}
last {{setting main | rded 4 | hald | last steps}}
{{stage main | rded 4 | hald | 2}} after the hard stage
{{figure gain}}
{{gains main | hald | soft_only}}
mean {{mean_gain main | hald | soft_only | 4}}
{{stages main | hald, soft_only}}
{{labels main | slc}}
{{labels main | images}}
{{teachers}}
{{costs}}
"""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    copy_known(tmp_path / "config")
    figures = "figures: {gain: {kind: gain, caption: What HALD gains, table: main}}\n"
    (tmp_path / "config/experiments/tiny.yaml").write_text(TINY_DEMO + figures)
    return make_plan({"experiments": ["tiny"], "results": str(tmp_path / "r"), "stores": str(tmp_path / "s")}, tmp_path)


def record(plan: Plan, run: str, seed: int, top1: float) -> None:
    """A training that gained five points in each stage after the first and ended with `top1`."""
    starts = [0, *accumulate(stage.epochs or 1 for stage in plan.runs[run].stages)]
    curve = [
        {"epoch": end, "stage": "soft", "lr": 0.1, "loss": 0.5, "top1": top1 - 5 * left, "top5": 99.0}
        for left, end in zip(reversed(range(len(starts) - 1)), starts[1:], strict=True)
    ]
    more: dict[str, Any] = {"best": {"epoch": starts[-1], "top1": top1}, "stage_starts": starts[:-1], "curve": curve}
    facts = {
        "key": run,
        "format": 2,
        "code": "c" * 64,
        "versions": {"torch": "2"},
        "label_bytes": 10,
        "slc_effective": 4.0,
        "seed": seed,
    }
    write_json(plan.record(run, seed), facts | more | {"top1": top1, "top5": 99.0, "spec": to_dict(plan.runs[run])})
    timing = {
        "kind": "evaluate small/resnet10-w4@32",
        "device": "cpu",
        "seconds": 900.0,
        "work": plan.runs[run].effort[1] / 2,
    }
    write_json(plan.record(run, seed).with_suffix(".timing.json"), timing)


def finish(plan: Plan) -> None:
    for cell in plan.tables["main"].cells:
        for seed in range(2):
            record(plan, cell.run, seed, (40.0 if cell.column == ("hald",) else 30.0) + 2 * seed)
    (teacher,) = plan.teachers
    write_json(plan.teacher_dir(teacher) / "teacher.json", {"arch": "small/resnet10-w4", "top1": 91.23, "top5": 99.0})


def test_a_document_is_made_of_its_archive_alone(plan: Plan, tmp_path: Path) -> None:
    finish(plan)
    archive, template = tmp_path / "study.json", tmp_path / "found.in.md"
    collect(plan, archive, "snakemake here")
    shutil.rmtree(plan.results)
    template.write_text(TEMPLATE)
    write_document(archive, PRINTED, template, tmp_path / "found.md")
    text = (tmp_path / "found.md").read_text()
    assert "| rded | 4 | 31.0 ± 1.4 | **41.0 ± 1.4** |" in text
    assert "HALD 41.0 ± 1.4, +10.0 ± 1.4 points." in text
    assert "The paper has 35.6 and 39.1.\n" in text
    assert "8 steps, 0.001\n1, 1\nlast 4\n36.0 after the hard stage\n" in text  # 1 + 1 + 2 epochs of 2 steps
    assert f"`snakemake here -- results/tables/main.csv`; {time.strftime('%Y-%m-%d')}; " in text
    assert "code cccccccccccc" in text
    assert "![What HALD gains](found/gain.png)" in text
    # deviation sqrt(2) of two seeds each: sqrt(2 / 2 + 2 / 2)
    assert "| evaluation | images | SLC 4 | ahead |\n| --- | --- | ---: | ---: |\n" in text
    assert "| hald | rded | +10.0 ± 1.4 | everywhere |\n\n± standard error of the difference, with one" in text
    assert "(1.4 at SLC 4)." in text
    assert "mean +10.0 ± 1.4\n" in text
    assert "| images | SLC | hald | soft_only |\n" in text
    more = read_json(archive)  # a seed that another table has is none of this one's
    for run in more["runs"].values():
        run["seeds"]["2"] = run["seeds"]["0"] | {"differs": {"code": "d" * 64}}
    write_json(archive, more)
    assert "| rded | 4 | 31.0 → 36.0 → 41.0 | 31.0 |" in text  # seeds of 40 and 42, and of 30 and 32
    assert "| slc | labels | bytes | bytes per label |\n| --- | ---: | ---: | ---: |\n| 4 | 40 | 10 | 0.2 |\n" in text
    assert (
        "| images | labels | bytes | bytes per label |\n| --- | ---: | ---: | ---: |\n| rded | 40 | 10 | 0.2 |\n"
        in text
    )
    assert "| small/resnet10-w4 | random crops | 91.2 | 85 |" in text
    assert "| evaluate small/resnet10-w4@32 | 120.0 |" in text
    picture = (tmp_path / "found/gain.png").read_bytes()
    write_document(archive, PRINTED, template, tmp_path / "found.md")
    assert (tmp_path / "found.md").read_text() == text
    assert (tmp_path / "found/gain.png").read_bytes() == picture


@pytest.mark.parametrize(
    ("gains", "where"),
    [
        ([5.0, 1.0, -1.0], "up to SLC 28"),  # half of the way from 20 to 40 on a logarithmic scale: sqrt(20 * 40)
        ([4.0, -4.0, -9.0], "up to SLC 14"),
        ([-1.0, 1.0, 2.0], "from SLC 14"),
        ([-1.0, 1.0, -1.0], "SLC 14 to SLC 28"),
        ([1.0, -1.0, 1.0], "up to SLC 14, from SLC 28"),
        ([5.0, 4.0, 0.5], "everywhere"),
        ([-1.0, -4.0, -9.0], "nowhere"),
        ([5.0, None, -1.0], "–"),
    ],
)
def test_where_an_evaluation_is_ahead(gains: list[float | None], where: str) -> None:
    assert _ahead([10, 20, 40], gains) == where


def test_errors_are_those_of_all_trainings_with_as_many_labels() -> None:
    """Variances 2 (two seeds) and 8 (two seeds) of SLC 10: sqrt(5); the other SLC has nothing to say about it."""
    cells = pd.DataFrame(
        [
            {"slc": "10", "seeds": 2, "top1_std": math.sqrt(2), "top1_mean": 40.0},
            {"slc": "10", "seeds": 2, "top1_std": math.sqrt(8), "top1_mean": 30.0},
            {"slc": "20", "seeds": 1, "top1_std": None, "top1_mean": 30.0},
            {"slc": "20", "seeds": 3, "top1_std": 3.0, "top1_mean": 31.0},
        ]
    )
    deviations = _deviations(cells)
    assert deviations == pytest.approx({"10": math.sqrt(5), "20": 3.0})
    assert _difference(cells.iloc[0], cells.iloc[1], deviations) == pytest.approx((10.0, math.sqrt(5 / 2 + 5 / 2)))
    assert _difference(cells.iloc[3], cells.iloc[2], deviations) == pytest.approx((1.0, math.sqrt(9 / 3 + 9)))


def test_what_others_archived_stays_and_what_is_not_shown_goes(plan: Plan, tmp_path: Path) -> None:
    finish(plan)
    path = tmp_path / "study.json"
    theirs = {"tables": {"theirs": {"spec": {"cells": [{"run": "a"}]}, "command": "snakemake there"}}}
    theirs |= {"runs": {"a": {"name": "x"}, "b": {"name": "y"}}}
    write_json(path, {"format": 2, "figures": {}, "analyses": {}, "teachers": {}, "costs": {}} | theirs)
    assert collect(plan, path, "snakemake here") == f"{path}: 2 tables; 4 of 5 trainings are there"
    archive = read_json(path)
    assert sorted(archive["tables"]) == ["main", "other", "theirs"]
    shown = {cell.run for cell in plan.tables["main"].cells}
    assert set(archive["runs"]) == shown | {"a"}
    assert path.read_text().count("\n") < 30  # one entry a line
    plan.record(next(iter(shown)), 1).unlink()
    assert "2 of them in place of older ones; 3 of 5" in collect(plan, path, "snakemake here")
    assert read_json(path)["runs"] == archive["runs"]  # the archived seed stays


def test_the_cost_of_a_teacher_that_was_not_needed_again_stays(plan: Plan, tmp_path: Path) -> None:
    finish(plan)
    (teacher,) = plan.teachers
    timing = plan.teacher_dir(teacher) / "timing.json"
    write_json(timing, {"kind": "squeeze net@32", "device": "cpu", "seconds": 1800.0, "work": 1.0})
    collect(plan, tmp_path / "study.json", "snakemake here")
    before = read_json(tmp_path / "study.json")["costs"]["snakemake here"]
    assert before["squeeze net@32"] == 0.5
    timing.unlink()
    collect(plan, tmp_path / "study.json", "snakemake here")
    assert read_json(tmp_path / "study.json")["costs"]["snakemake here"] == before
    collect(plan, tmp_path / "study.json", "snakemake more")  # the same tables, and what they cost, by another command
    assert read_json(tmp_path / "study.json")["costs"] == {"snakemake more": before}


def test_a_study_goes_on_from_its_archive(plan: Plan, tmp_path: Path) -> None:
    """Records and timings come back byte for byte, where they are missing and nowhere else."""
    finish(plan)
    before = {path: path.read_bytes() for path in Path(plan.results).glob("runs/*/*/seed-*")}
    assert len(before) == 8
    collect(plan, tmp_path / "study.json", "snakemake here")
    first, *others = sorted(path for path in before if "timing" not in path.name)
    for path in others:
        path.unlink()
        path.with_suffix(".timing.json").unlink()
    first.write_text(first.read_text() + "\n")  # is not touched
    assert restore(plan, tmp_path / "study.json") == f"{plan.results}: 3 records restored; 4 of 5 trainings are there"
    after = {path: path.read_bytes() for path in before}
    assert after.pop(first) == before.pop(first) + b"\n"
    assert after == before


def test_trainings_of_other_code_are_adopted_when_asked_for(plan: Plan, tmp_path: Path) -> None:
    """The archive is of the time before `hard_temperature`, and of other code: other keys, the same settings."""
    finish(plan)
    collect(plan, tmp_path / "study.json", "snakemake here")
    archive = read_json(tmp_path / "study.json")
    old = {key: f"old{key[3:]}" for key in archive["runs"]}
    archive["runs"] = {old[key]: run for key, run in archive["runs"].items()}
    for run in archive["runs"].values():
        del run["spec"]["hard_temperature"]
        run["spec"]["eta"] = int(run["spec"]["eta"])  # 2 instead of 2.0
        for seed in run["seeds"].values():
            seed["made"] = ["2026-01-31", "there"]
    (first, second) = archive["runs"].values()
    second["spec"]["lr"] *= 2  # no longer the same
    write_json(tmp_path / "study.json", archive)
    shutil.rmtree(Path(plan.results) / "runs")
    assert "0 records restored" in restore(plan, tmp_path / "study.json")
    assert "2 records restored" in restore(plan, tmp_path / "study.json", adopt=True)
    (key,) = {path.parent.name.rpartition("_")[2] for path in Path(plan.results).glob("runs/*/*/seed-0.json")}
    record = read_json(plan.record(key, 0))
    assert (record["key"], record["adopted"], record["code"]) == (key, old[key], "c" * 64)
    assert first["name"].endswith(key)
    # one seed is trained anew: it was made by today's code, the other one still says whose it is
    new = {name: value for name, value in read_json(plan.record(key, 1)).items() if name != "adopted"}
    write_json(plan.record(key, 1), new | {"code": "d" * 64, "top1": 77.0})
    before = [plan.record(key, seed).read_bytes() for seed in (0, 1)]
    for _ in range(2):  # the second time its old key is gone
        collect(plan, tmp_path / "study.json", "snakemake here")
        seeds = read_json(tmp_path / "study.json")["runs"][key]["seeds"]
        assert [seeds[seed]["made"][0] for seed in "01"] == ["2026-01-31", time.strftime("%Y-%m-%d")]
    for seed in (0, 1):
        plan.record(key, seed).unlink()
    restore(plan, tmp_path / "study.json")
    assert [plan.record(key, seed).read_bytes() for seed in (0, 1)] == before


def test_a_cell_without_records_is_a_dash(plan: Plan, tmp_path: Path) -> None:
    record(plan, plan.tables["other"].cells[0].run, 0, 50.0)
    collect(plan, tmp_path / "study.json", "snakemake here")
    (tmp_path / "found.in.md").write_text(
        "{{cell main | rded 4 | hald}} {{gain main | rded 4 | hald | rded 4 | soft_only}}"
    )
    write_document(tmp_path / "study.json", PRINTED, tmp_path / "found.in.md", tmp_path / "found.md")
    assert (tmp_path / "found.md").read_text() == "– –"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("tabel main", "no word 'tabel'"),
        ("table mian", "no table 'mian'; there are main, other"),
        ("cell main | rded 5 | hald", "no cell 'rded 5' | 'hald'"),
        ("cell main", "write {{cell NAME | ROW | COLUMN}}"),
        ("gains main | hlad | soft_only", "no evaluation 'hlad'"),
        ("setting main | rded 4 | hald | step", "no number 'step'; try steps"),
        ("stage main | rded 4 | hald | 4", "has stages 1 to 3, and none that is '4'"),
        ("labels main | slice", "no field 'slice'; try slc or images"),
        ("teachers all", "write {{teachers}}"),
        ("paper tab0 | slc 100", "no table 'tab0'; there are tab1_main_tiny_imagenet, "),
        ("paper tab9_schedules | slc 100", "table 'tab9_schedules' of the paper has 4 numbers with slc 100"),
        ("figure gian", "no figure 'gian'; there are gain"),
        ("table main}} {{table", "write {{table NAME}}"),
        ("table main}} {{", "braces without their partner"),
    ],
)
def test_a_wrong_word_is_named(plan: Plan, tmp_path: Path, word: str, message: str) -> None:
    finish(plan)
    collect(plan, tmp_path / "study.json", "snakemake here")
    (tmp_path / "found.in.md").write_text(f"{{{{{word}}}}}")
    with pytest.raises(UserError) as refused:
        write_document(tmp_path / "study.json", PRINTED, tmp_path / "found.in.md", tmp_path / "found.md")
    assert message in str(refused.value)


def test_help_has_every_word_of_a_template(plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish(plan)
    collect(plan, tmp_path / "study.json", "snakemake here")
    (tmp_path / "found.in.md").write_text("{{words}}")
    with pytest.raises(UserError, match="there are ") as refused:
        write_document(tmp_path / "study.json", PRINTED, tmp_path / "found.in.md", tmp_path / "found.md")
    words = str(refused.value).partition("there are ")[2].split(", ")
    with pytest.raises(SystemExit):
        main(["archive", "--help"])
    assert set(re.findall(r"\{\{(\w+)", capsys.readouterr().out)) == set(words)


def test_what_cannot_be_archived(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is nothing to archive"):
        collect(plan, tmp_path / "study.json", "snakemake here")
    finish(plan)
    for content in ("{}", "[]", '{"format": 2}'):
        (tmp_path / "study.json").write_text(content)
        with pytest.raises(UserError, match="not an archive of results"):
            collect(plan, tmp_path / "study.json", "snakemake here")


@pytest.mark.slow
def test_the_document_of_the_study_is_what_its_archive_says(tmp_path: Path) -> None:
    """Text by letter; pictures by what is seen on them, as another matplotlib or zlib writes other bytes."""
    write_document(ROOT / "docs/study.json", PRINTED, ROOT / "docs/results.in.md", tmp_path / "results.md")
    assert (tmp_path / "results.md").read_text() == (ROOT / "docs/results.md").read_text()
    pictures = re.findall(r"\]\((results/\S+?\.png)\)", (tmp_path / "results.md").read_text())
    assert pictures
    for picture in pictures:
        made, kept = (np.asarray(Image.open(folder / picture), np.int16) for folder in (tmp_path, ROOT / "docs"))
        assert made.shape == kept.shape
        assert np.abs(made - kept).mean() < 0.5, picture
