"""The demo itself, all of it, through a real Slurm with accounting, and every fault in that one run.

About half an hour on two cores, half of it for the local run that it is compared with; `make test-cluster` includes it.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cluster_runs import (
    GPU_NODES,
    GPU_RULES,
    HERE,
    HOG,
    Run,
    SlurmJob,
    guarded,
    limit,
    out_of_memory,
    overheads,
    put_before,
    same_results,
    slurm,
)

from conftest import Project, copy_project

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not os.environ.get("HALD_CLUSTER"), reason="needs a test cluster: make test-cluster"),
]
LONG = 1800.0  # seconds


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """The project as it is, on a cluster whose queue forgets finished jobs and whose database does not."""
    subprocess.run([HERE / "slurm", "stop"], check=True)
    subprocess.run([HERE / "slurm", "start", "accounting"], check=True)
    yield from guarded(Run(copy_project(tmp_path / "slurm")))
    subprocess.run([HERE / "slurm", "stop"], check=True)


@pytest.fixture
def local(tmp_path: Path) -> Project:
    """The demo, run without Slurm and undisturbed."""
    project = copy_project(tmp_path / "local")
    project.run("all")
    return project


# One of the trainings would need more time than its first attempt has.
SLOW = """import time
import hald.evaluation.train
quick = hald.evaluation.train.train_epoch
if "-gift-" in snakemake.wildcards.run and snakemake.resources.runtime == 4:
    hald.evaluation.train.train_epoch = lambda *a: (time.sleep(3), quick(*a))[1]
"""


def test_the_demo_in_spite_of_every_fault(run: Run, request: pytest.FixtureRequest) -> None:
    put_before(run.project, "evaluate", SLOW)
    limit(run.project, "evaluate", runtime="4 * attempt", slurm_extra="\"'--signal=USR1@60'\"")
    put_before(run.project, "statistics", HOG)
    limit(run.project, "statistics", mem_mb="1500 * attempt")
    run.start()
    moved = lose_its_node(run)
    cancelled = cancel_another(run, moved.job.number)
    kill_the_main_process(run)
    run.start()
    assert run.finish(LONG) == 0, run.text()[-6000:]
    assert "Falling back to 'sacct' for status queries" in run.text()  # squeue forgets too soon here
    recovered(run, moved, cancelled)
    out_of_memory(run, "statistics")
    out_of_time(run)
    placed(run)
    a_student_is_trained_again(run)
    same_results(run, request.getfixturevalue("local"))


@dataclass(frozen=True)
class Fault:
    """A synthesis job that something happened to, and how many of its units were there."""

    job: SlurmJob
    units: int


def name_of(job: SlurmJob) -> str:
    """The image set that a recover job is at."""
    (name,) = re.findall(r"((?:sre2l|lpld|fadrm)\S*?)_\d{5}-\d{5}(?:\+\d+)?$", job.what)
    return str(name)


def underway(run: Run, units: int, but: int = 0) -> Fault | None:
    """A running synthesis job that has made some units."""
    for job in run.running("recover"):
        made = len(run.files(f"units/*/{name_of(job)}/*.npz"))
        if job.number != but and made >= units:
            return Fault(job, made)
    return None


def caught(run: Run, units: int, but: int = 0) -> Fault:
    run.until(lambda: underway(run, units, but), LONG)
    found = underway(run, units, but)
    assert found
    return found


def lose_its_node(run: Run) -> Fault:
    """Set the node of a synthesis job down when it has made some images; Slurm starts it elsewhere."""
    fault = caught(run, 2)
    node, number = fault.job.node, fault.job.number
    slurm("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    run.until(lambda: any(job.number == number and job.restarts for job in run.running("recover")))
    slurm("scontrol", "update", f"nodename={node}", "state=resume")
    return fault


def cancel_another(run: Run, but: int) -> Fault:
    """scancel a synthesis job; Snakemake submits it again."""
    fault = caught(run, 1, but)
    name = name_of(fault.job)
    slurm("scancel", str(fault.job.number))
    run.until(
        lambda: any(name_of(job) == name and job.number != fault.job.number for job in run.running("recover")), LONG
    )
    return fault


def kill_the_main_process(run: Run) -> None:
    """Its trainings go on; a new run refuses to start beside them, and `hald jobs stop` has them save and end."""
    run.until(lambda: run.files("runs/*/*/seed-?.json"), LONG)
    run.until(lambda: len(run.running("evaluate")) >= 2 and run.files(".partial/*/seed-*/checkpoint.pt"), LONG)
    assert run.process is not None
    os.kill(run.process.pid, signal.SIGKILL)
    run.finish()
    assert run.call("snakemake", "--unlock").returncode == 0
    run.start()
    assert run.finish() != 0
    assert "Slurm jobs of an earlier run in this folder are not over" in run.text()
    records = {path: path.stat().st_ino for path in run.files("runs/*/*/seed-?.json")}  # Snakemake touches what is new
    assert run.call("hald.cli.main", "jobs", "stop").returncode == 0
    assert not run.running("evaluate")
    assert {path: path.stat().st_ino for path in records} == records
    print(f"main process killed: {len(records)} finished trainings kept, the running ones saved and ended")


def recovered(run: Run, moved: Fault, cancelled: Fault) -> None:
    """No more than the unit in hand was made again, each time."""
    jobs = {job.number: job for job in run.jobs("recover")}
    assert jobs[moved.job.number].restarts == 1
    assert jobs[cancelled.job.number].state == "CANCELLED"
    for what, fault in (("node down", moved), ("scancel", cancelled)):
        (log,) = run.files(f"logs/recover/*/{name_of(fault.job)}-*.log")
        (left,) = re.findall(r"(\d+) of \d+ units to make", log.read_text())
        assert 10 - int(left) >= fault.units
        print(f"{what}: {fault.units} of 10 units were there and stayed; at most 1 was made twice")


def out_of_time(run: Run) -> None:
    """The slow training saved when it was warned and went on, with more time, where it was: no epoch twice."""
    slow = [job for job in run.jobs("evaluate") if "-gift-" in job.what]
    assert sorted(job.minutes for job in slow)[-1] == 8
    assert max(slow, key=lambda job: job.number).state == "COMPLETED"
    (log,) = run.files("logs/evaluate/*/*-gift-*.log")
    (kept,) = re.findall(r"goes on after epoch (\d+)", log.read_text())
    assert f"SIGUSR1: saving after {kept}" in run.text()
    print(f"time limit: warned, stopped and resumed after epoch {kept}; 0 epochs repeated")


def placed(run: Run) -> None:
    """Every kind of job ran where it belongs."""
    jobs = [job for job in run.jobs() if job.state == "COMPLETED"]
    assert {job.rule for job in jobs} == GPU_RULES | {"dataset"}
    assert {job.node for job in jobs if job.gpus} == GPU_NODES
    assert all(job.gpus == (job.rule in GPU_RULES) for job in jobs)
    print(overheads(run).text)


def a_student_is_trained_again(run: Run) -> None:
    """An analysis whose students were removed: they are trained again as Slurm jobs, to the same result."""
    (analysis,) = run.files("analyses/*/landscape_??????????.json")
    before_it = analysis.read_bytes()
    analysis.unlink()
    removed = run.files("runs/*/*/students")
    for students in removed:
        shutil.rmtree(students)
    before = {job.number for job in run.jobs()}
    run.start()
    assert run.finish(LONG) == 0, run.text()[-6000:]
    assert analysis.read_bytes() == before_it
    new = [job for job in run.jobs() if job.number not in before]
    assert {job.rule for job in new} == {"student", "analysis"}
    assert {job.state for job in new} == {"COMPLETED"}
    assert all(job.gpus for job in new)
