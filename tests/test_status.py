"""`hald status`, and the job counts of `hald plan` against Snakemake's own."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from conftest import ROOT, TINY_DEMO, copy_known, copy_project, job_counts
from hald.cli import main
from hald.files import write_json
from hald.plan import Plan, make_plan
from hald.plan import todo as work
from hald.plan.activity import FRESH
from hald.plan.config import config_from
from hald.plan.status import Cells, status
from hald.plan.summary import report, table_costs
from hald.plan.todo import Todo, everything
from hald.train.command import planned

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with the small experiment as its config, and a second experiment."""
    copy_known(tmp_path / "config")
    (tmp_path / "config/config.yaml").write_text("experiments: [tiny]\n")
    (tmp_path / "config/experiments/tiny.yaml").write_text(TINY_DEMO)
    (tmp_path / "config/experiments/second.yaml").write_text(TINY_DEMO.replace("other:", "third:"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def touch(path: Path, content: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def finish_run(plan: Plan, run: str) -> None:
    for seed in range(plan.seeds[run]):
        write_json(plan.record(run, seed), {"top1": 50.0})


def write_table(plan: Plan, name: str) -> None:
    for suffix in ("csv", "md", "tex", "html"):
        touch(plan.table_file(name, suffix))
    write_json(plan.meaning_file("tables", name), plan.meaning("tables", name))


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def cells_of(plan: Plan) -> dict[str, Cells]:
    return {line.name: line.cells for line in status(plan).tables}


def checkpoint(plan: Plan, run: str, seed: int, epoch: int) -> Path:
    path = plan.partial(run) / f"seed-{seed}/checkpoint.json"
    write_json(path, {"epoch": epoch})
    return path


def log(plan: Plan, run: str, seed: int, text: str) -> Path:
    path = Path(plan.results, "logs/evaluate", f"{plan.slugs[run]}-{seed}.log")
    touch(path, text)
    return path


TIMED = {"kind": "some", "device": "cpu", "seconds": 1.0, "work": 1.0}


def test_a_cell_is_done_when_all_its_seeds_have_records(here: Path) -> None:
    plan = make_plan()
    first, second, _ = plan.runs
    assert cells_of(plan) == {"main": Cells(0, 0, 2, 0, 4), "other": Cells(0, 0, 1, 0, 1)}
    finish_run(plan, first)
    write_json(plan.record(second, 1), {"top1": 50.0})
    write_json(plan.record(second, 0).with_suffix(".timing.json"), TIMED)  # no record
    assert cells_of(plan)["main"] == Cells(1, 0, 1, 3, 4)
    assert sum(line.state == "done" for line in planned(plan)) == 3  # `hald runs ls` says the same


PROGRESS = "10:00:00 seed 0 epoch 1/3  1/s  2s left\n"


@pytest.mark.parametrize(
    ("text", "running"),
    [
        ("", True),  # just opened
        (PROGRESS, True),
        (PROGRESS + "UserWarning: a library's own words\n", True),
        ("10:00:00 error: no such file\n10:05:00 goes on after epoch 20\n", True),  # a second attempt
        (PROGRESS + "10:00:01 done in 12s\n", False),
        (PROGRESS + "10:00:01 error: the loss is nan in batch 3 of 9\n", False),
        (PROGRESS + "10:00:01 stopped by SIGTERM; what was done is kept, the next attempt goes on\n", False),
        (PROGRESS + "10:00:01 Traceback (most recent call last):\n  File x, line 1\nRuntimeError: broken\n\n", False),
    ],
)
def test_a_cell_is_running_while_its_log_is_fresh_and_open(here: Path, text: str, running: bool) -> None:
    plan = make_plan()
    run, other, _ = plan.runs
    path = log(plan, run, 1, text)
    assert cells_of(plan)["main"] == Cells(0, int(running), 2 - running, 0, 4)
    assert status(plan).at_work == ({"evaluate": 1} if running else {})
    age(path, FRESH + 5)
    assert cells_of(plan)["main"].running == 0
    log(plan, other, 1, PROGRESS)
    finish_run(plan, other)
    assert cells_of(plan)["main"] == Cells(1, 0, 1, 2, 4)  # done comes before running


def test_a_new_checkpoint_is_running_and_an_old_one_is_said_to_be_stopped(here: Path) -> None:
    plan = make_plan()
    run = next(iter(plan.runs))
    path = checkpoint(plan, run, 0, 2)
    assert cells_of(plan)["main"].running == 1
    age(path, FRESH + 5)
    now = status(plan)
    assert (now.total.cells.running, now.stopped) == (0, 1)
    checkpoint(plan, run, 0, 2)
    log(plan, run, 1, "10:00:01 stopped by SIGTERM; what was done is kept, the next attempt goes on\n")
    assert (status(plan).total.cells.running, status(plan).stopped) == (0, 1)


def test_a_live_claim_is_a_relabel_job_at_work(here: Path) -> None:
    plan = make_plan()
    claim = plan.store_dir(next(iter(plan.labels))) / "claims/00001.json"
    write_json(claim, {"host": "elsewhere", "pid": 1})
    assert status(plan).at_work == {"relabel": 1}
    age(claim, 301)
    assert status(plan).at_work == {}


def test_label_bytes_are_measured_where_views_are_there(here: Path) -> None:
    plan = make_plan()
    (labels,) = {plan.runs[cell.run].labels for cell in plan.tables["main"].cells}
    (other,) = {plan.runs[cell.run].labels for cell in plan.tables["other"].cells}
    assert (plan.views[labels], plan.views[other]) == (2, 1)
    write_json(plan.marker(labels, 1), {"files": {"q": {"bytes": 1000}, "box": {"bytes": 234}}})
    estimate = plan.labels[labels].view_bytes
    main_line, other_line = status(plan).tables
    assert (main_line.label_bytes, main_line.bytes_to_come) == (1234, estimate)
    assert (other_line.label_bytes, other_line.bytes_to_come) == (0, plan.labels[other].view_bytes)
    touch(plan.marker(labels, 1), "{}")
    assert main(["status"]) == 1


def test_shared_labels_are_counted_once_in_the_total(here: Path) -> None:
    raw = config_from(["override={tiny: {tables: {other: {images: [rded], slc: [2]}}}}"])
    plan = make_plan(raw)
    now = status(plan)
    assert [line.bytes_to_come // next(iter(plan.labels.values())).view_bytes for line in now.tables] == [2, 1]
    assert now.total.bytes_to_come == now.tables[0].bytes_to_come


def timing(plan: Plan, kind: str, seconds: float, work: float, number: int) -> None:
    record = {"kind": kind, "device": "cpu", "seconds": seconds, "work": work}
    write_json(Path(plan.stores, f"timed/x.zarr/timings/{number}.json"), record)


def test_time_left_is_that_of_everything_missing_upstream(here: Path) -> None:
    """By hand: table `other` needs teacher, image set, one view and one training of 4 epochs on 20 images."""
    plan = make_plan()
    run = plan.tables["other"].cells[0].run
    (teacher,) = plan.teachers.values()
    images = plan.images[plan.labels[plan.runs[run].labels].images]
    timing(plan, teacher.effort[0], seconds=60, work=1, number=0)  # a minute an epoch: 2 epochs
    timing(plan, images.effort[0], seconds=20, work=20, number=1)  # a second an image: 20 images
    timing(plan, plan.labels[plan.runs[run].labels].effort[0], seconds=10, work=20, number=2)  # 10 s a view
    assert status(plan).tables[1].seconds is None  # nothing is known of trainings yet
    assert "evaluate small/resnet10-w4@32" in status(plan).untimed
    timing(plan, plan.runs[run].effort[0], seconds=8, work=4 * 20, number=3)  # 2 s an epoch: 4 epochs
    assert status(plan).tables[1].seconds == pytest.approx(120 + 20 + 10 + 8)
    assert status(plan).tables[0].seconds is None  # nothing is known of rankings
    age(checkpoint(plan, run, 0, 3), FRESH + 5)
    write_json(plan.partial(next(iter(plan.teachers))) / "checkpoint.json", {"epoch": 1})
    assert status(plan).tables[1].seconds == pytest.approx(60 + 20 + 10 + 2)
    touch(plan.store_dir(plan.runs[run].labels) / "zarr.json")  # a store has its images and teacher in it
    assert status(plan).tables[1].seconds == pytest.approx(10 + 2)
    finish_run(plan, run)
    assert status(plan).tables[1].seconds == 0
    assert not status(plan).tables[1].finished  # the table is not written yet
    write_table(plan, "other")
    assert status(plan).tables[1].finished


def test_a_tables_own_cost_is_that_of_its_labels_and_students(here: Path) -> None:
    """By hand: `main` has two evaluations of 3 and 4 epochs with two seeds each, on 20 images, and two views."""
    plan = make_plan()
    runs = [plan.runs[cell.run] for cell in plan.tables["main"].cells]
    assert [cost.hours for cost in table_costs(plan)] == [None, None]
    timing(plan, runs[0].effort[0], seconds=3600, work=20, number=0)  # an hour an epoch
    assert [cost.hours for cost in table_costs(plan)] == [None, None]  # nothing is known of labels
    timing(plan, plan.labels[runs[0].labels].effort[0], seconds=1800, work=20, number=1)  # half an hour a view
    main, other = table_costs(plan)
    assert (main.students, main.images, main.hours) == (4, 2 * (3 + 4) * 20, 2 * (3 + 4) + 2 * 0.5)
    assert (other.students, other.images, other.hours) == (1, 4 * 20, 4 + 0.5)
    assert main.label_bytes == 2 * plan.labels[runs[0].labels].view_bytes


def test_output(here: Path, capsys: Capture) -> None:
    plan = make_plan()
    first, second, third = plan.runs
    finish_run(plan, first)
    finish_run(plan, third)
    log(plan, second, 1, PROGRESS)
    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["table", "done", "running", "missing", "labels", "time", "left"]
    assert re.fullmatch(r"main +1 +1 +0  █{8}░{8}   50 % +~\d+ B +unknown", lines[1])
    assert re.fullmatch(r"other +1 +0 +0  █{16}  100 % +~\d+ B +to write", lines[2])
    assert re.fullmatch(r"total +2 +1 +0  █{9}░{7}   60 % +~\d.\d kB +unknown", lines[4])
    assert lines[5] == "at work, by logs and claims of the last 10 minutes: evaluate 1"
    assert lines[6].startswith("no timing yet: evaluate small/resnet10-w4@32, ranking@32 ")
    assert len({len(line) for line in lines[:5]}) == 1


def test_narrow_terminals_lose_the_bar(here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["status"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines()[:5])) <= 60


def test_an_experiment_is_shown_whatever_the_config_says(here: Path, capsys: Capture) -> None:
    (here / "config/config.yaml").write_text("experiments: [tiny]\noverride: {tiny: {epochs: 7}}\n")
    assert main(["status", "second"]) == 0
    out = capsys.readouterr().out
    assert "third" in out
    assert "other" not in out
    (here / "config/experiments/both.yaml").write_text("includes: [tiny, second]\n")
    override = "override={second: {tables: {third: {seeds: 3}}}, demo: {threads: 1}}"
    assert main(["status", "both", "--config", "experiments=[demo]", override]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:4]] == ["main", "other", "third"]
    (here / "config/experiments/both.yaml").unlink()
    assert main(["status", "tinny"]) == 1
    message = "hald: there is no experiment 'tinny'; there are second, tiny\n"
    assert capsys.readouterr().err == message


@pytest.mark.parametrize("value", ["0", "-1", "nan", "second"])
def test_a_strange_interval_is_refused(here: Path, capsys: Capture, value: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["status", "--watch", value])
    assert stopped.value.code == 2
    assert f"found '{value}', expected seconds" in capsys.readouterr().err


def test_watch_ends_when_everything_is_done(here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan()

    def meanwhile(_seconds: float) -> None:
        for run in plan.runs:
            finish_run(plan, run)
        for name in plan.tables:
            write_table(plan, name)
        for images in plan.images:
            touch(plan.preview_file(images))

    monkeypatch.setattr(time, "sleep", meanwhile)
    assert main(["status", "--watch", "5"]) == 0
    out = capsys.readouterr().out
    assert out.count("total") == 2
    assert "every 5 s, Ctrl-C ends" in out
    assert out.endswith("all done\n")
    assert "\x1b" not in out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["status", "--watch"]) == 0
    assert capsys.readouterr().out.startswith("\x1b[2J\x1b[Htable")


def test_ctrl_c_ends_watching_without_complaint(here: Path) -> None:
    command = [sys.executable, "-m", "hald.cli", "status", "--watch", "60"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    listening = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it
    with subprocess.Popen(command, text=True, preexec_fn=listening, **pipes) as process:
        assert process.stdout
        while "Ctrl-C" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")


def test_the_whole_paper_is_looked_at_with_few_listings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Thousands of files that are not there cost nothing: only folders that exist are listed."""
    plan = make_plan({"experiments": ["paper"], "results": str(tmp_path), "stores": str(tmp_path / "labels")}, ROOT)
    touch(plan.record(next(iter(plan.runs)), 0))
    listed = []
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path) or [e.name for e in os.scandir(path)])
    todo = Todo(plan)
    assert len(todo.behind(everything(plan))) > 500
    assert len(listed) < 10


def test_sharing_by_hand(here: Path) -> None:
    """Two evaluations at SLC 4 and at SLC 2 of sre2l at IPC 2, and one table more at IPC 1."""
    small = {"method": "sre2l", "batch": 10, "recover": {"budgets": [2]}}
    grid = {"caption": "c", "evaluations": ["soft_only", "hald"], "students": ["resnet10"], "images": ["small"]}
    tables = {
        "main": grid | {"ipc": [2], "slc": [2, 4], "seeds": 2, "columns": ["slc", "evaluation"]},
        "other": grid | {"ipc": [1], "slc": [1], "seeds": 1},
    }
    raw = {"experiments": ["tiny"], "override": {"tiny": {"images": {"small": small}, "tables": tables}}}
    lines = report(make_plan(raw)).splitlines()
    assert lines[-3].split() == ["training", "runs", "10", "10", "10"]
    assert lines[-2].split() == ["label", "views", "3", "4", "8"]  # nested: 2 of IPC 2, 1 of IPC 1
    assert lines[-1].split() == ["images", "optimised", "20", "30", str(4 * 20 + 2 * 10)]


def random_state(plan: Plan, seed: int, share: float) -> None:
    """Let every file that the workflow can make exist with some probability, whatever it would be made from."""
    rng = random.Random(seed)
    needs = [(need.rule, need.key, unit) for need in planned_units(plan) for unit in range(need.count)]
    for rule, key, unit in needs:
        if rng.random() < share:
            touch(work.KINDS[rule].file(plan, key, unit))
    for key in plan.labels:
        if rng.random() < share:
            touch(plan.store_dir(key) / "zarr.json")
    for number, name in enumerate(plan.tables):
        write_table(plan, name)
        if number == 0:  # one that is as it should be, but for one of its formats
            for cell in plan.tables[name].cells:
                finish_run(plan, cell.run)
            plan.table_file(name, "md").unlink()


def planned_units(plan: Plan) -> list[work.Need]:
    counts = [("rank" if key in plan.rankings else "recover", key, n) for key, n in plan.unit_counts.items()]
    counts += [("relabel", key, n) for key, n in plan.views.items()] + [
        ("evaluate", k, n) for k, n in plan.seeds.items()
    ]
    single = {
        "dataset": plan.datasets,
        "squeeze": plan.teachers,
        "statistics": plan.statistics,
        "synthesize": plan.images,
    }
    counts += [(rule, key, 1) for rule, specs in single.items() for key in specs]
    return [work.Need(*entry) for entry in counts]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "share", "jobs"),
    [
        ("demo", 0.0, ""),
        ("demo", 0.5, "{views_per_job: 2, units_per_job: 3, seeds_per_job: 2}"),
        ("demo", 0.9, "{views_per_job: 3, units_per_job: 4, seeds_per_job: 1}"),
        ("paper", 0.0, ""),
        ("paper", 0.6, ""),
    ],
)
def test_snakemake_counts_the_same_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, experiment: str, share: float, jobs: str
) -> None:
    project = copy_project(tmp_path / "project")
    monkeypatch.chdir(project.folder)
    config = [f"experiments=[{experiment}]", *([f"jobs={jobs}"] if jobs else [])]
    plan = make_plan(config_from(config))
    if share:
        random_state(plan, seed=7, share=share)
    command = ["env", "-u", "HALD_DATA", sys.executable, "-m", "snakemake", "-n", "--cores", "1", "--config", *config]
    counted = job_counts(project.call(command).stdout)
    assert counted
    assert work.job_counts(plan) == counted
    assert main(["plan", "--config", *config]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("snakemake jobs"))
    assert line.split()[2] == f"{sum(counted.values()):,}"
