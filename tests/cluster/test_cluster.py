"""The whole chain through a real Slurm, undisturbed and disturbed: the bytes of a local run, and how much was repeated.

`make test-cluster` runs these. They need root and install Debian's packages, which a plain `make test` must not do.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_runs import (
    BASE,
    GPU_NODES,
    GPU_RULES,
    HERE,
    HOG,
    Run,
    SlurmJob,
    guarded,
    limit,
    make_project,
    out_of_memory,
    overheads,
    put_before,
    same_results,
    slurm,
)

from conftest import Project

pytestmark = pytest.mark.skipif(not os.environ.get("HALD_CLUSTER"), reason="needs a test cluster: make test-cluster")
UNITS = 10  # of a ranking


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """The cluster, up and empty."""
    subprocess.run([HERE / "slurm", "start"], check=True)
    yield
    if os.environ.get("HALD_CLUSTER") != "keep":
        subprocess.run([HERE / "slurm", "stop"], check=True)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The experiment, run locally from its start to its tables."""
    project = make_project(tmp_path_factory.mktemp("local") / "project")
    project.run("all")
    return project


@pytest.fixture
def fresh(cluster: None, tmp_path: Path) -> Iterator[Run]:
    """A project in which nothing is done yet."""
    yield from guarded(Run(make_project(tmp_path / "project")))


@pytest.fixture
def unfinished(untrained: Run) -> Run:
    """A project that lacks its students, the crops of its images by rank, and its optimised images."""
    for kind in ("rankings", "units"):
        for path in (*untrained.files(f"{kind}/*/*/*.npz"), *untrained.files(f"{kind}/*/*/done/*")):
            path.unlink()
    return untrained


@pytest.fixture
def untrained(cluster: None, undisturbed: Project, tmp_path: Path) -> Iterator[Run]:
    """A project that lacks nothing but its students."""
    copy = Project(shutil.copytree(undisturbed.folder, tmp_path / "project", symlinks=True))
    for part in ("runs", "tables", "logs", "benchmarks"):
        shutil.rmtree(copy.folder / "results" / part)
    yield from guarded(Run(copy))


def test_the_chain_through_slurm_gives_the_bytes_of_a_local_run(fresh: Run, request: pytest.FixtureRequest) -> None:
    fresh.start()
    undisturbed = request.getfixturevalue("undisturbed")  # meanwhile
    assert fresh.finish() == 0, fresh.text()[-6000:]
    same_results(fresh, undisturbed)
    jobs = fresh.jobs()
    assert {job.rule for job in jobs} == GPU_RULES | {"dataset"}  # tables are local
    assert all(job.state == "COMPLETED" for job in jobs)
    assert {job.node for job in jobs if job.gpus} == GPU_NODES  # both of them, and only those
    assert all(job.gpus == (job.rule in GPU_RULES) for job in jobs)
    assert {job.node for job in jobs if not job.gpus} == {"c1"}
    assert all(job.node in fresh.place(job) for job in jobs if job.rule in ("squeeze", "rank"))
    measured = overheads(fresh)
    print(measured.text)
    # An allocation is held for the start of Python and Snakemake and for the work, not for waiting.
    assert measured.before < 15
    assert measured.after < 10


def test_four_faults_in_one_run(unfinished: Run, undisturbed: Project) -> None:
    """A time limit, too little memory, a node that fails, a cancelled job: each is tried again and goes on."""
    run = unfinished
    # Slurm warns up to a minute before it is asked to: here 60 to 90 s after the start.
    put_before(run.project, "evaluate", SLOW)
    limit(run.project, "evaluate", runtime="attempt + 1", slurm_extra="\"'--signal=USR1@30'\"")
    put_before(run.project, "recover", HOG)
    limit(run.project, "recover", mem_mb="1500 * attempt")
    targets = [str(path.relative_to(run.folder)) for path in (run.lacks("rankings"), run.lacks("units"))]
    run.start(*targets)
    run.until(lambda: run.ranked() >= 2)
    (ranking,) = run.running("rank")
    slurm("scontrol", "update", f"nodename={ranking.node}", "state=down", "reason=test")
    before = run.ranked()
    try:
        run.until(lambda: run.running("rank") and run.running("rank")[0].restarts)
        run.until(lambda: run.ranked() >= max(before + 1, 6))
        slurm("scancel", str(ranking.number))
        after = run.ranked()
        assert run.finish() == 0, run.text()[-6000:]
    finally:
        slurm("scontrol", "update", f"nodename={ranking.node}", "state=resume")
    same_results(run, undisturbed)
    same_units(run, undisturbed)
    warned(run)
    out_of_memory(run, "recover")
    moved_and_cancelled(run, ranking, [before, after])


# On the first attempt a job's first student would need more than the two minutes: the warning comes within its epochs.
SLOW = """import time
import hald.evaluation.train
quick = hald.evaluation.train.train_epoch
hald.evaluation.train.train_epoch = lambda *a: (time.sleep(1 if snakemake.resources.runtime == 2 else 0), quick(*a))[1]
"""


def warned(run: Run) -> None:
    """Students saved when the warning came, and lost nothing: not one epoch was trained twice."""
    jobs = run.jobs("evaluate")
    assert sorted((job.state, job.minutes) for job in jobs) == [("COMPLETED", 3)] * 2 + [("FAILED", 2)] * 2
    assert all(job.ended - job.started < 120 for job in jobs)  # they went before they were killed
    # A rule's log is that of its last attempt; the main process has shown those of attempts that failed.
    assert run.text().count("stopped by SIGUSR1; what was done is kept") == 2
    stopped = [int(epoch) for epoch in re.findall(r"SIGUSR1: saving after (\d+)", run.text())]
    kept = [int(epoch) for epoch in re.findall(r"goes on after epoch (\d+)", run.log("evaluate"))]
    assert len(kept) == 2
    assert sorted(kept) == sorted(stopped)
    print(f"time limit: 0 epochs repeated (students stopped and resumed after epochs {kept})")


def moved_and_cancelled(run: Run, ranking: SlurmJob, ranked: list[int]) -> None:
    """The node fails and Slurm starts the job on another; it is cancelled and Snakemake submits it again.

    The classes that were ranked stay. The one in hand, at most, is begun again, each time.
    """
    first, second = sorted(run.jobs("rank"), key=lambda job: job.number)
    assert (first.number, first.state, first.restarts) == (ranking.number, "CANCELLED", 1)
    assert first.node != ranking.node
    assert second.state == "COMPLETED"
    left = [int(count) for count in re.findall(r"(\d+) of \d+ units to make", run.text() + run.log("rank"))]
    kept = [UNITS - count for count in left]
    assert all(k >= r for k, r in zip(kept, ranked, strict=True)), (kept, ranked)
    print(f"node down, then scancel: {kept[0]}, then {kept[1]} of {UNITS} classes kept; at most 1 repeated each time")


def same_units(run: Run, project: Project) -> None:
    """Rankings and optimised images are the same bytes too."""
    for pattern in ("rankings/*/*/*.npz", "units/*/*/*.npz"):
        theirs = {path.name: path.read_bytes() for path in (project.folder / "results").glob(pattern)}
        assert {path.name: path.read_bytes() for path in run.files(pattern)} == theirs


def test_a_killed_main_process_is_started_again(untrained: Run, undisturbed: Project) -> None:
    """Its jobs go on. A new main process notices them and does not submit their work beside them."""
    untrained.start()
    untrained.until(lambda: untrained.running("evaluate") and untrained.files(".partial/*/seed-*"))
    assert untrained.process is not None
    os.kill(untrained.process.pid, signal.SIGKILL)
    untrained.finish()
    orphans = untrained.running("evaluate")
    assert untrained.call("snakemake", "--unlock").returncode == 0
    untrained.start()
    assert untrained.finish() != 0
    assert f"{len(orphans)} Slurm jobs of an earlier run in this folder are not over" in untrained.text()
    assert all(str(job.number) in untrained.call("hald.cli.main", "jobs", "ls").stdout for job in orphans)
    assert untrained.call("hald.cli.main", "jobs", "wait").returncode == 0
    assert {job.state for job in untrained.jobs("evaluate")} == {"COMPLETED"}
    untrained.start()
    assert untrained.finish() == 0, untrained.text()[-6000:]
    same_results(untrained, undisturbed)
    jobs = untrained.jobs("evaluate")
    assert len(jobs) == len(orphans)  # what they finished was not done again
    assert "goes on after" not in untrained.log("evaluate")  # nor interrupted


def test_a_controller_that_is_gone_for_a_while(untrained: Run, undisturbed: Project) -> None:
    """Jobs that are at work go on without it; the main process asks again until it answers."""
    untrained.start()
    untrained.until(lambda: len(untrained.files("runs/*/*/claims/*.json")) == 2)
    os.kill(int((BASE / "pids/slurmctld").read_text()), signal.SIGTERM)  # it writes down what it knows, and ends
    untrained.until(lambda: "Slurm does not answer (`squeue` fails)" in untrained.text())
    subprocess.run([HERE / "slurm", "start"], check=True)
    assert untrained.finish() == 0, untrained.text()[-6000:]
    same_results(untrained, undisturbed)
    assert {job.state for job in untrained.jobs("evaluate")} == {"COMPLETED"}
    assert len(untrained.jobs("evaluate")) == 2  # nothing was submitted again


@pytest.mark.long
def test_a_controller_that_forgets_its_jobs(untrained: Run, undisturbed: Project) -> None:
    """It dies and what it had written down is lost. Its jobs are noticed to be gone and submitted again, once."""
    untrained.start()
    untrained.until(lambda: len(untrained.files("runs/*/*/claims/*.json")) == 2)
    forgotten = untrained.running("evaluate")
    os.kill(int((BASE / "pids/slurmctld").read_text()), signal.SIGKILL)
    for path in (BASE / "state").glob("job_state*"):
        path.unlink()
    subprocess.run([HERE / "slurm", "start"], check=True, env=os.environ | {"FIRST_JOB": "5000"})
    assert untrained.finish() == 0, untrained.text()[-6000:]
    same_results(untrained, undisturbed)
    assert untrained.text().count("Slurm has forgotten job") == len(forgotten)
    again = untrained.jobs("evaluate")
    assert [job.state for job in again] == ["COMPLETED"] * len(forgotten)
    assert min(job.number for job in again) >= 5000
