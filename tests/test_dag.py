"""What Snakemake makes again and what it leaves alone: the situations of the edge rule, on finished results."""

import base64
import json
import os
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import ALL_JOBS, TINY_DEMO, Project, job_counts

pytestmark = pytest.mark.slow

Change = Callable[[Path], object]  # of a folder with finished results

BELOW_LABELS = {"evaluate": 3, "table": 2, "all": 1}
BELOW_IMAGES = {"relabel": 2} | BELOW_LABELS | {"preview": 2}
ONE_RUN = {"evaluate": 1, "table": 1, "all": 1}

# A second experiment beside the small one: `third` is its only table.
SECOND = TINY_DEMO.partition("tables:")[0]
NEW_TABLE = (
    "tables:\n  third: {caption: c, images: [rded], ipc: [2], slc: [4], evaluations: [%s], students: [resnet10]}\n"
)
NEW_STORE = SECOND + "labels: {seed: 43}\n" + NEW_TABLE % "soft_only"
NEW_IMAGES = SECOND.replace("mipc: 600", "mipc: 500") + NEW_TABLE % "soft_only"
NEW_RUN = SECOND.replace("epochs: 3}", "epochs: 2}") + NEW_TABLE % "soft_only"
BOTH = ("--config", "experiments=[tiny,second]")


@pytest.fixture
def copy(finished: Project, tmp_path: Path) -> Project:
    """A copy of the finished project that a test may change."""
    return finished.copied(tmp_path / "copy")


# ---- what happens to results ----


def remove(*patterns: str) -> Change:
    """Remove results, which have to be there."""

    def change(folder: Path) -> None:
        for pattern in patterns:
            found = list((folder / "results").glob(pattern))
            assert found, pattern
            for path in found:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def touch(pattern: str, padding: int = 0) -> Change:
    """Give files a newer time and, with padding, other bytes: Snakemake compares checksums of up to a megabyte."""

    def change(folder: Path) -> None:
        found = list((folder / "results").glob(pattern))
        assert found, pattern
        for path in found:
            path.write_text(path.read_text() + " " * padding)
            os.utime(path, (time.time() + 5,) * 2)

    return change


def write(name: str, text: str) -> Change:
    return lambda folder: (folder / name).write_text(text)


def replace(old: str, new: str) -> Change:
    return lambda folder: Project(folder).edit("config/experiments/tiny.yaml", old, new)


def lose_times(folder: Path) -> None:
    """As after a copy without times and without Snakemake's own folder: what was made last may be the oldest."""
    shutil.rmtree(folder / ".snakemake")
    paths = sorted(path for path in (folder / "results").rglob("*") if path.is_file())
    random.Random(0).shuffle(paths)
    for age, path in enumerate(paths):
        os.utime(path, (time.time() - 10_000 + age,) * 2)


def mark(pattern: str) -> Change:
    """Let Snakemake's marks of jobs that began and did not end be there."""

    def change(folder: Path) -> None:
        found = list((folder / "results").glob(pattern))
        assert found, pattern
        for path in found:
            mark_incomplete(folder, str(path.relative_to(folder)))

    return change


def mark_incomplete(folder: Path, name: str) -> None:
    marks = folder / ".snakemake/incomplete"
    marks.mkdir(exist_ok=True)
    (marks / base64.urlsafe_b64encode(name.encode()).decode()).write_text("{}")


def all_of(*changes: Change) -> Change:
    def change(folder: Path) -> None:
        for one in changes:
            one(folder)

    return change


nothing = all_of()
SOURCES = ("teachers", "images", "datasets", "rankings")
MORE_VIEWS = replace("slc: [4]", "slc: [6]")
MORE_SEEDS = replace("seeds: 2", "seeds: 3")
second_experiment = "config/experiments/second.yaml"


SITUATIONS: dict[str, tuple[Change, tuple[str, ...], dict[str, int]]] = {
    # nothing to do
    "teacher and dataset with other bytes, over 1 MB": (
        all_of(touch("teachers/*/*/teacher.json", 2_000_000), touch("datasets/*/manifest.json", 2_000_000)),
        (),
        {},
    ),
    "touched teacher, dataset, images and receipts": (
        all_of(*map(touch, ("teachers/*/*/*.json", "datasets/*/*.json", "images/*/*/*.json", "*/*/*/done/*.json"))),
        (),
        {},
    ),
    "copied without times": (lose_times, (), {}),
    "teacher and images gone": (remove("teachers", "images"), (), {}),
    "table gone, until evaluate": (remove("tables/main.md"), ("--until", "evaluate"), {}),
    "target that exists, teacher gone": (remove("teachers"), ("results/tables/main.csv",), {}),
    # something new
    "teacher gone, new store": (
        all_of(remove("teachers"), write(second_experiment, NEW_STORE)),
        BOTH,
        {"squeeze": 1, "relabel": 1} | ONE_RUN,
    ),
    "teacher gone, new images": (
        all_of(remove("teachers"), write(second_experiment, NEW_IMAGES)),
        BOTH,
        {"squeeze": 1, "rank": 1, "synthesize": 1, "relabel": 1} | ONE_RUN | {"preview": 1},
    ),
    "teacher gone, new store, until relabel": (
        all_of(remove("teachers"), write(second_experiment, NEW_STORE)),
        (*BOTH, "--until", "relabel"),
        {"squeeze": 1, "relabel": 1},
    ),
    "images gone, new run on old labels": (
        all_of(remove("images", "figures"), write(second_experiment, NEW_RUN)),
        BOTH,
        ONE_RUN,
    ),
    "images, teacher and dataset gone, new run on old labels": (
        all_of(remove(*SOURCES, "figures"), write(second_experiment, NEW_RUN)),
        BOTH,
        {"dataset": 1} | ONE_RUN,
    ),
    "copied without times, new store": (
        all_of(lose_times, write(second_experiment, NEW_STORE)),
        BOTH,
        {"relabel": 1} | ONE_RUN,
    ),
    "more views": (MORE_VIEWS, (), {"relabel": 1, "evaluate": 2, "table": 1, "all": 1}),
    "more views, images and teacher gone": (
        all_of(MORE_VIEWS, remove("images", "teachers", "figures")),
        (),
        {"relabel": 1, "evaluate": 2, "table": 1, "all": 1},
    ),
    "more seeds": (MORE_SEEDS, (), {"evaluate": 2, "table": 1, "all": 1}),
    "more seeds, images and teacher gone": (
        all_of(MORE_SEEDS, remove("images", "teachers", "figures")),
        (),
        {"evaluate": 2, "table": 1, "all": 1},
    ),
    # forced
    "-R relabel": (nothing, ("-R", "relabel"), {"relabel": 2} | BELOW_LABELS),
    "-R relabel, teacher and images gone": (
        remove("teachers", "images", "figures"),
        ("-R", "relabel"),
        {"relabel": 2} | BELOW_LABELS,
    ),
    "-R evaluate, teacher gone": (remove("teachers"), ("-R", "evaluate"), BELOW_LABELS),
    "-R evaluate, teacher and dataset gone": (
        remove("teachers", "datasets"),
        ("-R", "evaluate"),
        {"dataset": 1} | BELOW_LABELS,
    ),
    "-R squeeze": (nothing, ("-R", "squeeze"), {"squeeze": 1, "rank": 1, "synthesize": 2} | BELOW_IMAGES),
    "-R synthesize, images gone": (remove("images", "figures"), ("-R", "synthesize"), {}),  # nothing names them
    "-R evaluate, teacher gone, new store": (
        all_of(remove("teachers"), write(second_experiment, NEW_STORE)),
        (*BOTH, "-R", "evaluate"),
        {"squeeze": 1, "relabel": 1, "evaluate": 4, "table": 3, "all": 1},
    ),
    "-R one block": (
        nothing,
        ("-R", "labels/*/rded*/done/*.json"),
        {"relabel": 1, "evaluate": 2, "table": 1, "all": 1},
    ),
    "-R table, copied without times": (lose_times, ("-R", "table"), {"table": 2, "all": 1}),
    "-F": (nothing, ("-F",), ALL_JOBS),
    "-f a table, record gone": (
        remove("runs/*/rded*soft3*/seed-0.json"),
        ("-f", "results/tables/main.csv"),
        {"evaluate": 1, "table": 1},
    ),
    "-f a table": (nothing, ("-f", "results/tables/main.csv"), {"table": 1}),
    # something gone
    "a table gone": (remove("tables/main.md"), (), {"table": 1, "all": 1}),
    "a table and all that it was made from but records gone": (
        remove("tables/main.md", *SOURCES, "labels", "figures"),
        (),
        {"table": 1, "all": 1},
    ),
    "a table that means something else": (replace("caption: small", "caption: tiny"), (), {"table": 1, "all": 1}),
    "a record gone": (remove("runs/*/rded*soft3*/seed-0.json"), (), ONE_RUN),
    "a view gone": (remove("labels/*/rded*/views/00001.json"), (), {}),
    "a view and a record gone": (
        remove("labels/*/rded*/views/00001.json", "runs/*/rded*soft3*/seed-0.json"),
        (),
        {"relabel": 1} | ONE_RUN,
    ),
    "receipts and teacher gone": (remove("*/*/*/done", "teachers"), (), {}),
    "receipts and teacher gone, more seeds": (
        all_of(remove("*/*/*/done", "teachers"), MORE_SEEDS),
        (),
        {"evaluate": 2, "table": 1, "all": 1},
    ),
    "receipts gone, -R evaluate": (remove("*/*/*/done"), ("-R", "evaluate"), BELOW_LABELS),
    # killed
    "marked incomplete, teacher gone": (
        all_of(remove("teachers"), mark("images/*/*/image_set.json"), mark("*/*/*/done/*.json")),
        (),
        {},
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_jobs_of_a_dry_run_in_each_situation(copy: Project, name: str) -> None:
    change, arguments, expected = SITUATIONS[name]
    change(copy.folder)
    expanded = [file for argument in arguments for file in expand(copy, argument)]
    assert copy.planned(*expanded) == expected


def expand(project: Project, argument: str) -> list[str]:
    """An argument, or the results that it is a pattern of."""
    if "*" not in argument:
        return [argument]
    found = [str(path.relative_to(project.folder)) for path in (project.folder / "results").glob(argument)]
    assert found, argument
    return found


def test_finished_results_leave_nothing_to_do(finished: Project) -> None:
    assert "Nothing to be done" in finished.run("-n").stdout


# ---- pictures of the whole ----

CHAIN = {
    ("dataset", "squeeze"),
    ("dataset", "rank"),
    ("squeeze", "rank"),
    ("dataset", "synthesize"),
    ("squeeze", "synthesize"),
    ("rank", "synthesize"),
    ("synthesize", "relabel"),
    ("squeeze", "relabel"),
    ("dataset", "evaluate"),
    ("relabel", "evaluate"),
    ("evaluate", "table"),
    ("table", "all"),
}
OF_PREVIEWS = {("synthesize", "preview"), ("preview", "all")}


@pytest.mark.parametrize(
    ("change", "trainings", "previews"),
    [
        (nothing, 3, 2),
        (remove("teachers", "images"), 3, 0),  # image sets that are not there have none
        (all_of(lose_times, remove(*SOURCES, "labels"), MORE_SEEDS), 5, 1),  # unless they are to be made
    ],
    ids=["finished", "teacher and images gone", "something to do, nearly nothing there"],
)
def test_drawings_show_the_whole_chain(copy: Project, change: Change, trainings: int, previews: int) -> None:
    change(copy.folder)
    rules, edges = drawn(copy.run("--rulegraph").stdout)
    assert edges == CHAIN | (OF_PREVIEWS if previews else set())
    assert set(rules.values()) == {1}
    jobs, _ = drawn(copy.run("--dag").stdout)
    expected = without(ALL_JOBS, "preview", "evaluate") | {"evaluate": trainings}
    assert jobs == expected | ({"preview": previews} if previews else {})


def drawn(graph: str) -> tuple[Counter[str], set[tuple[str, str]]]:
    """Nodes by rule, and edges as pairs of rules, of a graph in Graphviz's language."""
    rule = dict(re.findall(r'^\s*(\d+)\[label = "(\w+)', graph, re.M))
    return Counter(rule.values()), {(rule[a], rule[b]) for a, b in re.findall(r"(\d+) -> (\d+)", graph)}


def test_the_report_shows_the_whole_chain_and_all_jobs_with_the_teacher_gone(copy: Project) -> None:
    remove("teachers")(copy.folder)
    copy.run("--report", "report.html")
    page = (copy.folder / "report.html").read_text()
    assert Counter(job["rule"] for job in shown(page, "runtimes")["data"]["values"]) == without(ALL_JOBS, "all")
    (nodes,) = (part["values"] for part in shown(page, "rulegraph")["data"] if part["name"] == "node-data")
    assert {node["rule"] for node in nodes} == set(ALL_JOBS)


def shown(page: str, name: str) -> dict[str, Any]:
    """What a diagram of the report is made from."""
    (found,) = re.findall(rf"var {name}_spec = (\{{.*?\}});\n", page, re.S)
    return json.loads(found)


def without(jobs: dict[str, int], *rules: str) -> dict[str, int]:
    return {rule: count for rule, count in jobs.items() if rule not in rules}


# ---- what reading the workflow does to the disk ----

LOOKS = [("-n",), ("-n", "-R", "relabel"), ("--rulegraph",), ("--lint",)]


def test_looking_changes_nothing_on_disk_but_snakemakes_own_folder(copy: Project) -> None:
    """Although there is something to sign, a table of another meaning, and a block that has lost a unit."""
    all_of(remove("labels/*/*/done", "runs/*/rded*/seed-0.json"), replace("real images", "others"))(copy.folder)
    shutil.rmtree(copy.folder / ".snakemake/hald")
    before = listing(copy.folder)
    for arguments in LOOKS:
        copy.run(*arguments)
        assert listing(copy.folder) == before, arguments
    assert list((copy.folder / ".snakemake/hald").glob("*.json"))


def test_looking_at_a_fresh_project_makes_no_results(project: Project) -> None:
    before = listing(project.folder)
    project.run("-n")
    project.run("--rulegraph")
    assert listing(project.folder) == before
    assert not (project.folder / "results").exists()


def listing(folder: Path) -> dict[str, int]:
    """Everything in a project with its time, but for what Snakemake and Python keep for themselves."""
    found = {}
    for root, names, files in os.walk(folder):
        names[:] = [name for name in names if name not in (".snakemake", "__pycache__")]
        is_ours = Path(root) == folder or "src" in Path(root).parts  # these get a folder for themselves
        found |= {str(Path(root, name)): Path(root, name).stat().st_mtime_ns for name in files}
        found[root] = 0 if is_ours else Path(root).stat().st_mtime_ns
    return found


# ---- stores that others may use ----


@pytest.fixture
def foreign(finished: Project, tmp_path: Path) -> Path:
    """Whole label stores in a folder outside of the results."""
    return Path(shutil.copytree(finished.folder / "results/labels", tmp_path / "shared"))


def test_views_in_a_foreign_folder_are_not_forced(copy: Project, foreign: Path) -> None:
    """Neither by rule nor by file; the first store is named."""
    receipt = min(foreign.glob("*/rded*/done/*.json"))
    arguments = ("--config", f"stores={foreign}")
    before = listing(foreign)
    for forced in (("-n", "-R", "relabel"), ("-R", "relabel"), ("-n", "-f", str(receipt))):
        done = copy.run(*forced, *arguments, check=False)
        assert done.returncode != 0
        stores = [str(path) for path in foreign.glob("*/*.zarr")]
        assert any(f"label store {store} is in a folder that others may use" in done.stdout for store in stores)
    assert copy.planned("-R", "evaluate", *arguments) == BELOW_LABELS
    assert listing(foreign) == before


def test_delete_all_output_names_nothing_in_a_foreign_folder(copy: Project, foreign: Path) -> None:
    deleted = copy.run("--delete-all-output", "-n", "--config", f"stores={foreign}").stdout
    assert "Would delete results/tables/main.csv" in deleted
    assert str(foreign) not in deleted
    min(foreign.glob("*/rded*/views/*.json")).unlink()  # a block has lost a view: its receipt counts no more
    deleted = copy.run("--delete-all-output", "-n", "--config", f"stores={foreign}").stdout
    assert "Would delete" in deleted
    assert str(foreign) not in deleted
    assert "Would delete results/labels/" in copy.run("--delete-all-output", "-n").stdout  # our own


# ---- receipts ----


def test_whole_blocks_without_receipts_are_signed_when_a_run_starts(copy: Project) -> None:
    receipts = {path: path.read_bytes() for path in (copy.folder / "results").glob("*/*/*/done/*.json")}
    assert len(receipts) == 1 + 2 + 3
    remove("*/*/*/done")(copy.folder)
    assert copy.planned() == {}
    assert not any(path.exists() for path in receipts)
    assert "Nothing to be done" in copy.run().stdout
    assert {path: path.read_bytes() for path in receipts} == receipts


def test_a_lost_unit_makes_only_its_own_block_again(copy: Project) -> None:
    """Blocks that had been cut by another size: receipts keep their borders, the rest is cut by today's."""
    one_each = ("--config", "jobs={seeds_per_job: 1, views_per_job: 1}")
    remove("runs/*/*/done", "labels/*/*/done", "labels/*/rded*/views/00001.json", "runs/*/rded*soft3*/seed-1.json")(
        copy.folder
    )
    listed = copy.run("-n", *one_each).stdout
    assert job_counts(listed) == {"relabel": 1} | ONE_RUN
    assert re.search(r"labelling digits/rded\S*, views 00001-00001$", listed, re.M)
    assert re.search(r"training digits/rded-ipc2-slc4-soft3\S*, seeds 00001-00001$", listed, re.M)


def test_a_block_whose_receipt_counts_no_more_gets_another_name(copy: Project) -> None:
    remove("runs/*/rded*soft3*/seed-1.json")(copy.folder)
    listed = copy.run("-n").stdout
    assert job_counts(listed) == ONE_RUN
    assert re.search(r"training digits/rded-ipc2-slc4-soft3\S*, seeds 00000-00001\+1$", listed, re.M)


# ---- real runs ----


def test_forced_labels_are_made_again_and_the_tables_come_out_the_same(copy: Project) -> None:
    tables = contents(copy, "tables/[!.]*")
    labels, records = times(copy, "labels/*/*/views/*.json"), times(copy, "runs/*/*/seed-?.json")
    assert (len(tables), len(labels), len(records)) == (10, 3, 5)
    kept = times(copy, "images/*/*/image_set.json") | times(copy, "teachers/*/*/teacher.json")
    written = times(copy, "tables/[!.]*")
    copy.run("-R", "relabel")
    assert not any(times(copy, "labels/*/*/views/*.json")[path] == time for path, time in labels.items())
    assert not any(times(copy, "runs/*/*/seed-?.json")[path] == time for path, time in records.items())
    assert not any(times(copy, "tables/[!.]*")[path] == time for path, time in written.items())
    assert times(copy, "images/*/*/image_set.json") | times(copy, "teachers/*/*/teacher.json") == kept
    assert contents(copy, "tables/[!.]*") == tables
    assert "Nothing to be done" in copy.run("-n").stdout


def test_killed_in_relabel_the_rest_is_made_after_unlocking(copy: Project) -> None:
    """One view was there, the receipt was not; the teacher is not needed, because the store has it."""
    receipt = min((copy.folder / "results").glob("labels/*/rded*/done/*.json"))
    remove("labels/*/rded*/views/00001.json", "runs/*/rded*", "tables/main.*", "tables/.meaning/main.json")(copy.folder)
    remove("labels/*/rded*/done/*.json", "teachers", "figures", "images")(copy.folder)
    name = str(receipt.relative_to(copy.folder))
    mark_incomplete(copy.folder, name)
    (copy.folder / ".snakemake/locks").mkdir(exist_ok=True)
    (copy.folder / ".snakemake/locks/0.output.lock").write_text(f"{name}\n")
    missing = {"relabel": 1, "evaluate": 2, "table": 1, "all": 1}
    done = copy.run("--until", "relabel", check=False)
    assert done.returncode != 0
    assert "--unlock" in done.stdout
    copy.run("--unlock")
    assert copy.planned() == missing
    kept = times(copy, "labels/*/*/views/00000.json")
    copy.run("--until", "relabel")
    assert times(copy, "labels/*/*/views/00000.json") == kept
    assert copy.planned() == without(missing, "relabel")


def times(project: Project, pattern: str) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (project.folder / "results").glob(pattern)}


def contents(project: Project, pattern: str) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (project.folder / "results").glob(pattern)}
