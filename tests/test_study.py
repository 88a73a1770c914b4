"""Pages of studies: every word of a template, and the page of studies/cpu."""

import json
import math
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from conftest import ROOT
from hald.cli.records import machine, records_out
from hald.errors import UserError
from hald.pipeline import Plan
from recorded import EXPERIMENT, finish, small_study, write_record
from studies.make import main, make_page
from studies.words import Words, _ahead, _deviations, _difference

pytestmark = pytest.mark.slow  # every page is made of whole plans

STUDY = Path("studies/own")
TEMPLATE = """# Found
{{ table("main") }}
HALD {{ cell("main", "rded 4", "hald") }}, {{ gain("main", "rded 4", "hald", "rded 4", "soft_only") }} points.
The paper: {{ paper("tab9_schedules", evaluation="hald") }}, {{ paper("tab3_baselines", evaluation="gift", slc=200) }}.
{{ setting("main", "rded 4", "hald", "steps") }} steps, {{ setting("main", "rded 4", "hald", "lr") }}
{{ setting("main", "rded 4", "hald", "first epochs") }}, {{ setting("main", "rded 4", "hald", "hard epochs") }}
last {{ setting("main", "rded 4", "hald", "last steps") }}
{{ stage("main", "rded 4", "hald", 2) }} after the hard stage
{{ figure("gain") }}
{{ gains("main", ["hald"], "soft_only") }}
mean {{ mean_gain("main", "hald", "soft_only", 4) }}
{{ stages("main", ["hald", "soft_only"]) }}
{{ labels("main", "slc") }}
{{ labels("main", "images") }}
{{ teachers() }}
{{ costs() }}
"""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / STUDY / "experiments").mkdir(parents=True)
    return small_study(tmp_path)[EXPERIMENT]


def page(plan: Plan, template: str) -> str:
    """The page of what the plan's results are: from the records alone."""
    root = Path(plan.results).parent
    if Path(plan.results).exists():
        records_out({EXPERIMENT: plan}, root / STUDY / "records.jsonl")
        shutil.rmtree(plan.results)
    (root / STUDY / "page.in.md").write_text(template)
    make_page(STUDY, root)
    return (root / STUDY / "page.md").read_text()


def test_a_page_is_made_of_its_records_alone(plan: Plan, tmp_path: Path) -> None:
    finish(plan)
    text = page(plan, TEMPLATE)
    assert "| rded | 4 | 31.0 ± 1.4 | **41.0 ± 1.4** |" in text
    assert "HALD 41.0 ± 1.4, +10.0 ± 1.4 points." in text
    assert "The paper: 35.6, 39.1.\n" in text
    assert "8 steps, 0.001\n1, 1\nlast 4\n36.0 after the hard stage\n" in text  # 1 + 1 + 2 epochs of 2 steps
    command = f"snakemake --cores all --config 'experiments=[{EXPERIMENT}]'"
    made = (
        f"`{command} -- results/tables/main.csv`; {time.strftime('%Y-%m-%d')}; {machine()}; torch 2; code {'c' * 12}."
    )
    assert made in text
    assert "![What HALD gains](figures/gain.png)" in text
    # deviation sqrt(2) of two seeds each: sqrt(2 / 2 + 2 / 2)
    assert "| evaluation | images | SLC 4 | ahead |\n| --- | --- | ---: | ---: |\n" in text
    assert "| hald | rded | +10.0 ± 1.4 | everywhere |\n\n± standard error of the difference, with one" in text
    assert "(1.4 at SLC 4)." in text
    assert "mean +10.0 ± 1.4\n" in text
    assert "| images | SLC | hald | soft_only |\n| --- | ---: | ---: | ---: |\n" in text
    assert "| rded | 4 | 31.0 → 36.0 → 41.0 | 31.0 |" in text  # seeds of 40 and 42, and of 30 and 32
    assert "| slc | labels | bytes | bytes per label |\n| --- | ---: | ---: | ---: |\n| 4 | 40 | 10 | 0.2 |\n" in text
    assert "| images | labels | bytes | bytes per label |\n" in text
    assert "| rded | 40 | 10 | 0.2 |\n" in text
    assert "| small/resnet10-w4 | random crops | 91.2 | 85 |" in text
    assert f"| `{command}` | evaluate small/resnet10-w4@32 | 120.0 |" in text
    assert text.endswith("|\n")
    picture = tmp_path / STUDY / "figures/gain.png"
    before = picture.read_bytes()
    assert page(plan, TEMPLATE) == text
    assert picture.read_bytes() == before
    assert [path.name for path in picture.parent.iterdir()] == ["gain.png"]


def test_keys_do_not_matter_and_seeds_of_other_tables_do_not_count(plan: Plan, tmp_path: Path) -> None:
    finish(plan)
    text = page(plan, TEMPLATE)
    records = tmp_path / STUDY / "records.jsonl"
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    for line in lines:
        line["record"] |= {"key": "0123456789"} if line["kind"] == "student" else {}
    third = [
        line | {"seed": 2, "record": line["record"] | {"code": "d" * 64}} for line in lines if line.get("seed") == 0
    ]
    records.write_text("".join(f"{json.dumps(line)}\n" for line in lines + third))
    assert page(plan, TEMPLATE) == text


def test_numbers_are_not_shown_under_settings_that_are_not_theirs(plan: Plan, tmp_path: Path) -> None:
    finish(plan)
    page(plan, TEMPLATE)
    experiment = tmp_path / f"{EXPERIMENT}.yaml"
    experiment.write_text(experiment.read_text().replace("hard_epochs: 1}", "hard_epochs: 1, smoothing: 0.5}"))
    with pytest.raises(
        UserError, match="4, resnet10, hald: recorded with smoothing 0.8, the experiment has 0.5; train"
    ):
        page(plan, TEMPLATE)


def test_a_cell_without_records_is_a_dash(plan: Plan) -> None:
    write_record(plan, plan.tables["other"].cells[0].run, 0, 50.0)
    words = ['cell("main", "rded 4", "hald")', 'gain("main", "rded 4", "hald", "rded 4", "soft_only")']
    words += ['stage("main", "rded 4", "hald", 2)', 'setting("main", "rded 4", "hald", "lr")']
    words += ['mean_gain("main", "hald", "soft_only", 4)']
    assert page(plan, " ".join(f"{{{{ {word} }}}}" for word in words)) == "– – – – –"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ('tabel("main")', "'tabel' is undefined. Words are table, figure, cell, "),
        ("cell(main, 1, 2)", "'main' is undefined. Words are "),
        ('table("mian")', "the study has no table 'mian'. Did you mean 'main'?"),
        ('figure("gian")', "the study has no figure 'gian'. Did you mean 'gain'?"),
        ('cell("main", "rded 5", "hald")', "no cell 'rded 5' | 'hald'; rows: rded 4; columns: soft_only, hald"),
        ('cell("main")', "missing a required argument: 'row'; write {{ cell(table, row, column) }}"),
        ("teachers(1)", "too many positional arguments; write {{ teachers() }}"),
        ('cell("main", "rded 4", colum="hald")', "'column'; write {{ cell(table, row, column) }}"),
        ('gains("main", ["hlad"], "soft_only")', "table 'main' has no evaluation 'hlad'. Did you mean 'hald'?"),
        ('gains("main", "hald", "soft_only")', "found 'hald' where a list is wanted: [\"hald\"]"),
        ('stages("main", ["hald", "soft"])', "table 'main' has no evaluation 'soft'. Did you mean 'soft_only'?"),
        ('mean_gain("main", "hald", "soft_only", 5)', "table 'main' has no SLC 5; there are 4"),
        ('setting("main", "rded 4", "hald", "step")', "no number 'step'. Did you mean 'steps'?"),
        ('stage("main", "rded 4", "hald", 4)', "has stages 1 to 3, and none that is 4"),
        ('labels("main", "slice")', "no field 'slice'; try slc or images"),
        ('paper("tab0", slc=100)', "no table 'tab0'. Known: tab1_main_tiny_imagenet, "),
        ('paper("tab9_schedules", slc=100)', "table 'tab9_schedules' of the paper has 4 numbers with slc 100"),
        ('paper("tab9_schedules", 100)', "write {{ paper(table, **fields) }}"),
        ('table("main"', "unexpected '}'"),
        ('table("main") }} {{', "Expected an expression"),
        ('table("main") }} }}', "}} without {{ before it"),
        ('table("main") | uper', "No filter named 'uper'"),
    ],
)
def test_a_wrong_word_is_named_with_its_line(plan: Plan, word: str, message: str) -> None:
    finish(plan)
    with pytest.raises(UserError) as refused:
        page(plan, f"# Found\n\n{{{{ {word} }}}}\n")
    assert str(refused.value).startswith(f"{Path(plan.results).parent / STUDY}/page.in.md, line 3: ")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "word",
    [
        'setting("study_drift", "R > 1 (%)", "resnet10", "lr")',
        'stages("study_drift", [])',
        'labels("study_drift", "slc")',
    ],
)
def test_a_table_of_an_analysis_has_no_trainings(word: str, tmp_path: Path) -> None:
    for folder in ("config", "studies"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "studies/cpu/records.jsonl").write_text("")
    (tmp_path / "studies/cpu/page.in.md").write_text(f"{{{{ {word} }}}}")
    with pytest.raises(UserError, match="line 1: table 'study_drift' shows an analysis, no trainings"):
        make_page(Path("studies/cpu"), tmp_path)


def test_help_has_every_word_and_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert set(re.findall(r"\{\{ (\w+)\(", out)) == set(Words([], [], {}, Path()).all())
    assert "{{ gain(table, row, column, other_row, other_column) }}\n      How much better one cell is" in out


def test_an_error_is_a_message(plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    finish(plan)
    page(plan, "nothing")
    monkeypatch.chdir(Path(plan.results).parent)
    assert main([str(STUDY)]) == 0
    (STUDY / "page.in.md").write_text('{{ table("mian") }}')
    assert main([str(STUDY)]) == 1
    message = "studies/own/page.in.md, line 1: the study has no table 'mian'. Did you mean 'main'?\n"
    assert capsys.readouterr().err == message
    assert main(["studies/other"]) == 1
    assert capsys.readouterr().err == "studies/other has no records.jsonl; `hald records out` makes one\n"


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


@pytest.mark.slow
def test_the_page_of_the_cpu_study_is_what_its_records_say(tmp_path: Path) -> None:
    """Text by letter; pictures by what is seen on them, as another matplotlib or zlib writes other bytes."""
    for folder in ("config", "studies"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    copy, kept = tmp_path / "studies/cpu", ROOT / "studies/cpu"
    (copy / "page.md").unlink()
    shutil.rmtree(copy / "figures")
    make_page(Path("studies/cpu"), tmp_path)
    assert (copy / "page.md").read_text() == (kept / "page.md").read_text()
    pictures = re.findall(r"\]\((figures/\S+?\.png)\)", (kept / "page.md").read_text())
    assert sorted(pictures) == sorted(f"figures/{path.name}" for path in (kept / "figures").iterdir())
    for picture in pictures:
        made, before = (np.asarray(Image.open(folder / picture), np.int16) for folder in (copy, kept))
        assert made.shape == before.shape
        assert np.abs(made - before).mean() < 0.5, picture
