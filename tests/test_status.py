"""`hald status`, and the jobs of `hald plan` against Snakemake's own."""

import os
import platform
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from conftest import ALL_JOBS, ROOT, TINY_DEMO, Project, copy_known, copy_project, job_counts
from hald.cli.main import main
from hald.cli.runs import planned
from hald.config.read import config_from
from hald.files import write_json
from hald.jobs.claims import SILENT, STALE
from hald.pipeline import Plan, make_plan
from hald.plan.graph import Graph, JobId
from hald.plan.stage import Need
from hald.plan.stages import STAGES
from hald.progress.status import Cells, status
from hald.progress.summary import job_counts as planned_jobs
from hald.progress.summary import report, table_costs

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


def make_units(plan: Plan, needs: Iterable[Need]) -> None:
    """Let what is needed be there, without receipts."""
    for need in needs:
        for unit in range(need.units):
            for file in plan.files(need.stage, need.key, unit):
                touch(Path(file))


def finish_run(plan: Plan, run: str) -> None:
    for seed in range(plan.needed["evaluate", run]):
        write_json(plan.file("evaluate", run, seed), {"top1": 50.0})


def write_table(plan: Plan, name: str) -> None:
    make_units(plan, [Need("table", name)])
    write_json(plan.file("table", name), plan.meaning("table", name))


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def cells_of(plan: Plan) -> dict[str, Cells]:
    return {line.name: line.cells for line in status(plan).tables}


def checkpoint(plan: Plan, run: str, seed: int, epoch: int) -> None:
    write_json(plan.partial(run) / f"seed-{seed}/checkpoint.json", {"epoch": epoch})


def claim(plan: Plan, stage: str, key: str, unit: int, host: str = "elsewhere", pid: int = 1) -> Path:
    """The claim that a job of some host keeps while it makes a unit, where jobs have it."""
    block = next((b.name for b in plan.blocks.get(key, ()) if unit in b.units), "")
    path = Graph(plan).job(JobId(stage, key, block)).claim_file(unit)
    write_json(path, {"user": "somebody", "host": host, "pid": pid, "since": time.time()})
    return path


def ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


TIMED = {"kind": "some", "device": "cpu", "seconds": 1.0, "work": 1.0}


def test_a_cell_is_done_when_all_its_seeds_have_records(here: Path) -> None:
    plan = make_plan()
    first, second, _ = plan.runs
    assert cells_of(plan) == {"main": Cells(0, 0, 2, 0, 4), "other": Cells(0, 0, 1, 0, 1)}
    finish_run(plan, first)
    write_json(plan.file("evaluate", second, 1), {"top1": 50.0})
    write_json(plan.folder("evaluate", second) / "timings/seed-0.json", TIMED)  # no record
    assert cells_of(plan)["main"] == Cells(1, 0, 1, 3, 4)
    assert sum(line.state == "done" for line in planned(plan)) == 3  # `hald runs ls` says the same


@pytest.mark.parametrize(
    ("here_now", "alive", "silent", "running"),
    [
        (True, True, 0, True),
        (True, False, 0, False),
        (True, True, STALE + 5, False),  # another process has got the number since
        (False, False, 0, True),  # a number of another host says nothing
        (False, False, SILENT + 5, True),
        (False, False, STALE + 5, False),
    ],
)
def test_a_cell_is_running_while_a_living_job_claims_a_seed(
    here: Path, here_now: bool, alive: bool, silent: float, running: bool
) -> None:
    plan = make_plan()
    run, other, _ = plan.runs
    host, pid = platform.node() if here_now else "elsewhere", os.getpid() if alive else ended_process()
    age(claim(plan, "evaluate", run, 1, host, pid), silent)
    assert cells_of(plan)["main"] == Cells(0, int(running), 2 - running, 0, 4)
    assert status(plan).at_work == ({"evaluate": 1} if running else {})
    finish_run(plan, other)
    claim(plan, "evaluate", other, 1)  # its job is about to end
    assert cells_of(plan)["main"] == Cells(1, int(running), 1 - running, 2, 4)  # done comes before running
    assert status(plan).at_work == ({"evaluate": 1} if running else {})


def test_a_claim_of_a_jobs_own_process_counts_until_it_is_released(here: Path) -> None:
    plan = make_plan()
    run = next(iter(plan.runs))
    job = Graph(plan).job(JobId("evaluate", run, plan.blocks[run][0].name))
    with job.claim(0) as own:
        assert own.granted
        assert cells_of(plan)["main"].running == 1
    assert cells_of(plan)["main"].running == 0


def test_a_claimed_checkpoint_is_running_and_another_is_said_to_be_stopped(here: Path) -> None:
    plan = make_plan()
    run = next(iter(plan.runs))
    checkpoint(plan, run, 0, 2)
    assert (status(plan).total.cells.running, status(plan).stopped) == (0, 1)
    path = claim(plan, "evaluate", run, 0)
    assert (status(plan).total.cells.running, status(plan).stopped) == (1, 0)
    age(path, STALE + 5)
    assert (status(plan).total.cells.running, status(plan).stopped) == (0, 1)
    claim(plan, "evaluate", run, 1)  # of the other seed
    assert (status(plan).total.cells.running, status(plan).stopped) == (1, 1)


def test_live_claims_of_every_stage_are_at_work(here: Path) -> None:
    plan = make_plan()
    ranking, teacher, labels = (next(iter(plan.specs[stage])) for stage in ("rank", "squeeze", "relabel"))
    for unit in (0, 3):
        claim(plan, "rank", ranking, unit)
    claim(plan, "squeeze", teacher, 0)
    path = claim(plan, "relabel", labels, 1)
    touch(path.with_name(f"{path.name}.stale-1"))  # while one takes over
    assert status(plan).at_work == {"squeeze": 1, "rank": 2, "relabel": 1}
    age(path, STALE + 5)
    make_units(plan, [Need("squeeze", teacher)])
    assert status(plan).at_work == {"rank": 2}


def test_label_bytes_are_measured_where_views_are_there(here: Path) -> None:
    plan = make_plan()
    (labels,) = {plan.runs[cell.run].labels for cell in plan.tables["main"].cells}
    (other,) = {plan.runs[cell.run].labels for cell in plan.tables["other"].cells}
    assert [plan.needed["relabel", key] for key in (labels, other)] == [2, 1]
    write_json(plan.file("relabel", labels, 1), {"files": {"q": {"bytes": 1000}, "box": {"bytes": 234}}})
    estimate = plan.labels[labels].view_bytes
    main_line, other_line = status(plan).tables
    assert (main_line.label_bytes, main_line.bytes_to_come) == (1234, estimate)
    assert (other_line.label_bytes, other_line.bytes_to_come) == (0, plan.labels[other].view_bytes)
    touch(plan.file("relabel", labels, 1), "{}")
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
    checkpoint(plan, run, 0, 3)
    write_json(plan.partial(next(iter(plan.teachers))) / "checkpoint.json", {"epoch": 1})
    assert status(plan).tables[1].seconds == pytest.approx(60 + 20 + 10 + 2)
    touch(plan.folder("relabel", plan.runs[run].labels) / "zarr.json")  # a store has its images and teacher in it
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
    claim(plan, "evaluate", second, 1)
    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["table", "done", "running", "missing", "labels", "time", "left"]
    assert re.fullmatch(r"main +1 +1 +0  █{8}░{8}   50 % +~\d+ B +unknown", lines[1])
    assert re.fullmatch(r"other +1 +0 +0  █{16}  100 % +~\d+ B +to write", lines[2])
    assert re.fullmatch(r"total +2 +1 +0  █{9}░{7}   60 % +~\d.\d kB +unknown", lines[4])
    assert lines[5] == "at work: evaluate 1"
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
        make_units(plan, [Need(stage, key) for stage in ("synthesize", "preview") for key in plan.images])

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
    command = [sys.executable, "-m", "hald.cli.main", "status", "--watch", "60"]
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
    touch(plan.file("evaluate", next(iter(plan.runs))))
    listed = []
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path) or [e.name for e in os.scandir(path)])
    graph = Graph(plan)
    assert len(graph.work_behind(graph.targets())) > 500
    assert len(graph.jobs_to_run()) > 1000
    assert 0 < len(listed) < 10


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


def test_jobs_by_hand(here: Path) -> None:
    """From nothing; with a store alone; with views whose receipt was lost, then with a view lost; with stale tables."""
    plan = make_plan(config_from(["jobs={views_per_job: 2, seeds_per_job: 2, units_per_job: 10}"]))

    def jobs() -> dict[str, int]:
        now = make_plan(config_from(["jobs={views_per_job: 1, seeds_per_job: 1, units_per_job: 3}"]))
        return planned_jobs(Graph(now))

    assert planned_jobs(Graph(plan)) == ALL_JOBS
    assert jobs() == ALL_JOBS | {"rank": 4, "relabel": 3, "evaluate": 5}
    labels = {name: plan.runs[plan.tables[name].cells[0].run].labels for name in plan.tables}
    touch(plan.folder("relabel", labels["main"]) / "zarr.json")  # its images and teacher are in it
    fewer = {"dataset": 1, "squeeze": 1, "synthesize": 1, "relabel": 3, "evaluate": 5, "table": 2, "preview": 1}
    assert jobs() == fewer | {"all": 1}
    make_units(plan, [Need("relabel", key, plan.needed["relabel", key]) for key in labels.values()])
    trained = {"dataset": 1, "evaluate": 5, "table": 2, "all": 1}
    assert jobs() == trained  # units stand for themselves
    touch(plan.folder("relabel", labels["main"]) / "done/00000-00001.json")
    assert jobs() == trained
    plan.file("relabel", labels["main"], 0).unlink()
    assert jobs() == trained | {"relabel": 1}  # of a block that has lost one, the other stays
    make_units(plan, [Need("relabel", labels["main"], 1), *(Need("evaluate", run, 2) for run in plan.runs)])
    assert jobs() == {"table": 2, "all": 1}
    for name in plan.tables:
        write_table(plan, name)
    assert jobs() == {}
    write_json(plan.file("table", "main"), plan.meaning("table", "other"))
    assert jobs() == {"table": 1, "all": 1}
    plan.file("evaluate", plan.tables["other"].cells[0].run).unlink()
    assert jobs() == {"dataset": 1, "evaluate": 1, "table": 2, "all": 1}


def random_state(plan: Plan, seed: int, share: float) -> None:
    """Let everything that the workflow makes be there with some probability, whatever it would be made from."""
    rng = random.Random(seed)
    for name, stage in STAGES.items():
        for key in plan.specs[name]:
            if stage.blocks:
                random_blocks(plan, name, key, rng, share)
            elif not stage.fixed_name and rng.random() < share:
                make_units(plan, [Need(name, key)])
            if stage.holds_inputs and rng.random() < share:
                touch(plan.folder(name, key) / stage.holds_inputs)
    shown = [(name, key) for name in ("table", "figure") for key in plan.specs[name]]
    for place in shown:
        random_outcome(plan, *place, rng)


def random_blocks(plan: Plan, stage: str, key: str, rng: random.Random, share: float) -> None:
    """Blocks of earlier sizes: done, done but not signed, signed with a file that was lost since, begun, missing."""
    first, needed = 0, plan.needed[stage, key]
    while first < needed:
        units = range(first, min(first + rng.randint(1, 6), needed))
        files = [Path(file) for unit in units for file in plan.files(stage, key, unit)]
        is_made = rng.random() < share
        for file in files:
            if is_made or rng.random() < share / 2:
                touch(file)
        fate = rng.choices(["signed", "not signed", "lost"], [4, 1, 1])[0]
        if is_made and fate != "not signed":
            touch(plan.folder(stage, key) / f"done/{units[0]:05d}-{units[-1]:05d}.json")
        if is_made and fate == "lost":
            rng.choice(files).unlink()
        first = units[-1] + 1


def random_outcome(plan: Plan, stage: str, key: str, rng: random.Random) -> None:
    """A table or figure: missing or written; with all that is behind it or not; right, of another plan, or in part."""
    if rng.random() < 0.2:
        return
    make_units(plan, [Need(stage, key)])
    if rng.random() < 0.5:
        make_units(plan, [need for needs in plan.needs(stage, key).values() for need in needs])
    means = rng.choice(["right", "right", "other", "part"])
    write_json(plan.file(stage, key), plan.meaning(stage, key) | ({"code": "old"} if means == "other" else {}))
    if means == "part":
        Path(rng.choice(plan.files(stage, key))).unlink()


def list_outputs(project: Project) -> None:
    """Let a dry run list each job with its files instead of its message."""
    for rules in (project.folder / "workflow/rules").glob("*.smk"):
        rules.write_text(re.sub(r"^    message:\n.*\n", "", rules.read_text(), flags=re.M))


def listed_outputs(output: str) -> set[str]:
    """The outputs of the jobs that a dry run lists."""
    return {file for line in re.findall(r"^    output: (.+)$", output, re.M) for file in line.split(", ")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "share", "jobs", "shared"),
    [
        ("demo", 0.0, "", False),
        ("demo", 0.5, "{views_per_job: 2, units_per_job: 3, seeds_per_job: 2}", False),
        ("demo", 0.9, "{views_per_job: 3, units_per_job: 4, seeds_per_job: 1}", False),
        ("demo", 0.7, "{views_per_job: 2, units_per_job: 4, seeds_per_job: 2}", True),
        ("paper", 0.0, "", False),
        ("paper", 0.6, "", False),
    ],
)
def test_snakemake_counts_the_same_jobs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    experiment: str,
    share: float,
    jobs: str,
    shared: bool,
) -> None:
    project = copy_project(tmp_path / "project")
    list_outputs(project)
    monkeypatch.chdir(project.folder)
    config = [f"experiments=[{experiment}]", *([f"jobs={jobs}"] if jobs else [])]
    config += [f"stores={tmp_path / 'shared'}"] if shared else []
    if share:
        random_state(make_plan(config_from(config)), seed=7, share=share)
    plan = make_plan(config_from(config))  # its blocks are those of what is there now
    command = ["env", "-u", "HALD_DATA", sys.executable, "-m", "snakemake", "-n", "--cores", "1", "--config", *config]
    listing = project.call(command).stdout
    counted, graph = job_counts(listing), Graph(plan)
    assert counted
    assert planned_jobs(graph) == counted
    assert {file for job in graph.jobs_to_run() for file in graph.declared(job)} == listed_outputs(listing)
    assert set(graph.work_behind(graph.targets())) == {job[:2] for job in graph.jobs_to_run()}
    assert main(["plan", "--config", *config]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("snakemake jobs"))
    assert line.split()[2] == f"{sum(counted.values()):,}"
