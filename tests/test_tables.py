"""Tables as pure functions of records."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from conftest import ROOT
from hald.errors import UserError
from hald.files import write_json
from hald.pipeline import make_plan
from hald.report.cells import cell_rows, read_record
from hald.report.render import render, to_html, to_latex, to_markdown, write_table
from hald.report.spec import Cell, Printed, TableSpec

TABLE = TableSpec(
    id="demo_main",
    caption="Digits & more, 100 %",
    rows=("images", "slc"),
    columns=("evaluation",),
    seeds=2,
    cells=(
        Cell(("rded", "10"), ("soft_only",), "a" * 10),
        Cell(("rded", "10"), ("hald",), "b" * 10),
        Cell(("real", "10"), ("soft_only",), "c" * 10),
        Cell(("real", "10"), ("hald",), "d" * 10),
    ),
)


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    values = {"a": [10.0, 20.0], "b": [40.0, 42.0], "c": [30.0], "d": []}
    out = {}
    for letter, accuracies in values.items():
        folder = tmp_path / f"run_{letter * 10}"
        for seed, top1 in enumerate(accuracies):
            record = {"top1": top1, "top5": 2 * top1, "label_bytes": 1234, "slc_effective": 10}
            write_json(folder / f"seed-{seed}.json", record)
        out[letter * 10] = folder
    return out


def test_long_form(folders: dict[str, Path]) -> None:
    rows = cell_rows(TABLE, folders)
    assert rows["top1_mean"].tolist()[:3] == [15.0, 41.0, 30.0]
    assert rows["top1_std"][0] == pytest.approx(50**0.5, abs=1e-4)
    assert rows["seeds"].tolist() == [2, 2, 1, 0]
    assert pd.isna(rows["top1_mean"][3])
    assert rows["label_bytes"][0] == 1234


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"key": "other", "top1": 1.0}', "is the record of another run .other.; remove it"),
        ('{"top1": 1.0}', "is not a whole result record .'top5'"),
        ('{"top1": 1.', "is not a whole result record|cannot be read"),
    ],
)
def test_records_that_are_not_this_runs_are_refused(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "seed-0.json").write_text(content)
    with pytest.raises(UserError, match=f"seed-0.json {words}"):
        read_record(tmp_path / "seed-0.json", "mine")


def test_markdown_marks_the_best_and_shows_what_is_missing(folders: dict[str, Path]) -> None:
    lines = to_markdown(render(TABLE, cell_rows(TABLE, folders))).splitlines()
    assert "| images | slc | soft_only | hald |" in lines
    assert "| rded | 10 | 15.0 ± 7.1 | **41.0 ± 1.4** |" in lines
    assert "| real | 10 | 30.0 (1/2 seeds) | – |" in lines


def test_the_best_is_that_of_evaluations_wherever_they_stand(folders: dict[str, Path]) -> None:
    """Over columns of images or SLC nothing is compared."""
    cells = tuple(replace(cell, row=cell.column, column=cell.row) for cell in TABLE.cells)
    table = replace(TABLE, rows=("evaluation",), columns=("images", "slc"), cells=cells)
    lines = to_markdown(render(table, cell_rows(table, folders))).splitlines()
    assert "| soft_only | 15.0 ± 7.1 | 30.0 (1/2 seeds) |" in lines
    assert "| hald | **41.0 ± 1.4** | – |" in lines
    table = replace(table, rows=("student",))
    assert "**" not in "".join(to_markdown(render(table, cell_rows(table, folders))).splitlines()[1:])


def test_the_papers_numbers_stand_beside_ours(folders: dict[str, Path]) -> None:
    printed = {
        "a": Printed(14.0, 0.2, False, (), ()),
        "b": Printed(43.5, None, True, ("ipc",), ("table 8 prints 43.6",)),
        "d": Printed(50.0, None, False, (), ("whole label epochs give SLC 8",)),
    }
    cells = tuple(replace(cell, paper=printed.get(cell.run[0])) for cell in TABLE.cells)
    table = replace(TABLE, cells=cells, number=2)
    rows = cell_rows(table, folders)
    assert rows["difference"].tolist()[:2] == [1.0, -2.5]
    assert pd.isna(rows["difference"][3])
    assert rows["paper_notes"][1] == "table 8 prints 43.6"
    text = to_markdown(render(table, rows))
    assert "| rded | 10 | 15.0 ± 7.1 [14, +1.0] | **41.0 ± 1.4** [43.5†°*, -2.5] |" in text
    assert "| real | 10 | 30.0 (1/2 seeds) | – [50*] |" in text
    assert "table 2 of the paper" in text
    assert "* rded 10 hald: table 8 prints 43.6." in text
    assert "* real 10 hald: whole label epochs give SLC 8." in text
    assert "does not print ipc" in text
    assert r"[43.5$^\dagger$$^\circ$$^\ast$, -2.5]" in to_latex(render(table, rows))
    assert "[43.5†°*, -2.5]" in to_html(render(table, rows))


def test_a_removed_record_becomes_a_dash(folders: dict[str, Path]) -> None:
    for path in folders["b" * 10].glob("*.json"):
        path.unlink()
    assert "| rded | 10 | 15.0 ± 7.1 | – |" in to_markdown(render(TABLE, cell_rows(TABLE, folders)))


def test_other_seeds_do_not_enter(folders: dict[str, Path]) -> None:
    write_json(folders["b" * 10] / "seed-7.json", {"top1": 0.0, "top5": 0.0, "label_bytes": 0, "slc_effective": 0})
    assert cell_rows(TABLE, folders)["top1_mean"][1] == 41.0


def test_html_is_escaped_and_whole(folders: dict[str, Path]) -> None:
    page = to_html(render(TABLE, cell_rows(TABLE, folders)))
    assert "Digits &amp; more" in page
    assert page.count("<tr>") == 3
    assert '<td class="best">41.0 <small>± 1.4</small></td>' in page


def test_latex(folders: dict[str, Path], tmp_path: Path) -> None:
    text = to_latex(render(TABLE, cell_rows(TABLE, folders)))
    assert r"rded & 10 & 15.0 $\pm$ 7.1 & \textbf{41.0 $\pm$ 1.4} \\" in text
    assert r"Digits \& more, 100 \%" in text
    assert r"soft\_only" in text
    compiled(text, tmp_path)


def compiled(text: str, folder: Path) -> None:
    """Let LaTeX have a look, where it is installed."""
    if shutil.which("pdflatex"):
        page = r"\documentclass{article}\usepackage{booktabs}\begin{document}" + text + r"\end{document}"
        (folder / "t.tex").write_text(page)
        done = subprocess.run(["pdflatex", "-halt-on-error", "t.tex"], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize("experiment", ["paper", "demo"])
def test_every_table_is_written_without_a_single_record(experiment: str, tmp_path: Path) -> None:
    plan = make_plan({"experiments": [experiment]}, ROOT)
    text = ""
    for name, table in plan.tables.items():
        folders = {cell.run: tmp_path / "nothing" / cell.run for cell in table.cells}
        write_table(table, folders, tmp_path / name)
        shown = (tmp_path / f"{name}.md").read_text()
        assert shown.count(" – ") >= len({(cell.row, cell.column) for cell in table.cells})
        text += (tmp_path / f"{name}.tex").read_text().replace("{table}", "{center}").replace("\\caption{", "\\textit{")
    compiled(text, tmp_path)


def test_all_formats_are_written(folders: dict[str, Path], tmp_path: Path) -> None:
    write_table(TABLE, folders, tmp_path / "tables" / "demo_main")
    suffixes = {".csv", ".html", ".md", ".tex", ".records.html"}
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {f"demo_main{suffix}" for suffix in suffixes}
    assert len(pd.read_csv(tmp_path / "tables" / "demo_main.csv")) == 4
