"""The report: one page that works without a network, with tables, figures, previews and records in it."""

import base64
from pathlib import Path

import pytest
import yaml

from browser import browser, is_there
from conftest import TINY_DEMO, Project, made_once

pytestmark = pytest.mark.slow

SHOWN = {
    "analyses": {"lvsd": {"kind": "lvsd", "images": ["real"], "ipc": [2], "samples": 10}},
    "figures": {
        "gain": {"kind": "gain", "caption": "Gain on two digits", "table": "main"},
        "drift": {"kind": "lvsd", "caption": "Drift of a small teacher", "analyses": ["lvsd"]},
    },
}


@pytest.fixture(scope="module")
def reported(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The small experiment with figures, run to its report."""
    content = yaml.safe_load(TINY_DEMO) | SHOWN
    content["tables"]["drift"] = {
        "caption": "Drift",
        "analysis": "lvsd",
        "rows": ["metric"],
        "columns": ["student"],
        "values": {"strong": "paper.mean_strong"},
    }

    def make(folder: Path) -> None:
        project = finished.copied(folder)
        (project.folder / "config/experiments/tiny.yaml").write_text(yaml.safe_dump(content))
        assert project.planned() == {"analysis": 1, "table": 1, "figure": 2, "all": 1}
        project.run()
        project.run("--report", "results/report.html")

    made = made_once(tmp_path_factory, "reported", make) / "project"
    return Project(made).copied(tmp_path_factory.mktemp("reported"))


def test_everything_that_is_shown_is_made(reported: Project) -> None:
    figures = {path.name for path in (reported.folder / "results/figures").glob("[!.]*.*")}
    assert figures == {f"{name}.{suffix}" for name in ("gain", "drift") for suffix in ("png", "svg", "pdf")}
    assert len(list((reported.folder / "results/figures/previews").glob("*/*.png"))) == 2
    assert len(list((reported.folder / "results/analyses").glob("*/lvsd_*/analysis.json"))) == 1
    assert "Nothing to be done" in reported.run().stdout


def test_one_figure_schedules_only_what_it_needs(reported: Project, tmp_path: Path) -> None:
    copy = reported.copied(tmp_path)
    for result in (copy.folder / "results/analyses").glob("*/lvsd_*/analysis.json"):
        result.unlink()
    assert copy.planned("results/figures/drift.png") == {"analysis": 1, "figure": 1}
    assert copy.planned("results/figures/gain.png") == {}


def test_the_page_needs_no_network(reported: Project) -> None:
    page = (reported.folder / "results/report.html").read_text()
    assert 'src="http' not in page
    assert '<link rel="stylesheet" href="http' not in page


@pytest.mark.skipif(not is_there(), reason="needs chromium and chromium-driver (Debian packages)")
def test_the_page_opens_and_shows_a_table_and_a_figure(reported: Project, tmp_path: Path) -> None:
    with browser(tmp_path / "profile") as window:
        window.open(reported.folder / "results/report.html")
        window.wait("return document.body.innerText.includes('Tables')")
        for category in ("Tables", "Figures", "Distilled images", "Run records"):
            assert category in window.text()
        window.click("Tables")
        window.view("main")
        shown = window.wait("const f = document.querySelector('iframe'); return f && f.src")
        assert shown == inline(reported.folder / "results/tables/main.html")
        window.click("Results")
        window.click("Figures")
        window.view("gain")
        window.wait("return [...document.images].some(i => i.src.startsWith('data:image/png') && i.naturalWidth > 300)")
        for category in ("Distilled images", "Run records"):
            window.click("Results")
            window.click(category)
            window.wait("return document.querySelectorAll('[iconname=eye]').length >= 2")
        window.picture(tmp_path / "report.png")
        assert window.errors() == []
    with browser(tmp_path / "other") as window:
        window.open(reported.folder / "results/tables/main.html")
        assert "hald" in window.text()
        assert window.errors() == []


def inline(page: Path) -> str:
    """A page as the report holds it."""
    text = base64.b64encode(page.read_bytes()).decode()
    return f"data:text/html;charset=utf8;filename={page.name};base64,{text}"
