"""The whole chain through a real Slurm, undisturbed and disturbed: the bytes of a local run, and how much was repeated.

`make test-cluster` runs these. They need root and install Debian's packages, which a plain `make test` must not do.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
import yaml
from cluster_runs import HERE, Run, SlurmJob, guarded, make_project, overheads, same_results, slurm

from conftest import Project

pytestmark = pytest.mark.skipif(not os.environ.get("HALD_CLUSTER"), reason="needs a test cluster: make test-cluster")
GPU_RULES = {"squeeze", "rank", "statistics", "recover", "synthesize", "relabel", "evaluate"}
GPU_NODES = {"n1", "n2"}
UNITS, EPOCHS = 10, 25  # of a ranking; of the teacher
INTERVAL = {"squeeze": 10, "evaluate": 20}  # epochs between checkpoints


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
def untrained(cluster: None, undisturbed: Project, tmp_path: Path) -> Iterator[Run]:
    """A project that lacks nothing but its students."""
    copy = Project(shutil.copytree(undisturbed.folder, tmp_path / "project", symlinks=True))
    for part in ("runs", "tables", ".plan", "logs", "benchmarks"):
        shutil.rmtree(copy.folder / "results" / part)
    yield from guarded(Run(copy))


def test_the_chain_through_slurm_gives_the_bytes_of_a_local_run(fresh: Run, undisturbed: Project) -> None:
    fresh.start()
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


def test_four_faults_in_one_run(fresh: Run, undisturbed: Project) -> None:
    """A time limit, a cancelled job, too little memory, a node that fails: each job is tried again and goes on."""
    # A minute is the shortest limit. Slurm warns up to a minute before it is asked to: here 20 to 50 s after the start.
    put_before(fresh.project, "squeeze", SLOW)
    limit(fresh.project, "squeeze", runtime="attempt", slurm_extra="\"'--signal=USR1@10'\"")
    put_before(fresh.project, "recover", HOG)
    limit(fresh.project, "recover", mem_mb="1500 * attempt")
    fresh.start()
    fresh.until(lambda: any("USR1" in text for text in [fresh.log("squeeze")]))
    fresh.until(lambda: len(fresh.files("rankings/*/*/*.npz")) >= 3)
    (ranking,) = fresh.running("rank")
    slurm("scancel", str(ranking.number))
    ranked = len(fresh.files("rankings/*/*/*.npz"))
    fresh.until(lambda: fresh.files(".partial/*/seed-0/checkpoint.json"), 200)
    failed = fresh.running("evaluate")[0]
    slurm("scontrol", "update", f"nodename={failed.node}", "state=down", "reason=test")
    try:
        fresh.until(lambda: any(job.restarts and job.state == "RUNNING" for job in fresh.jobs("evaluate")), 60)
    finally:
        slurm("scontrol", "update", f"nodename={failed.node}", "state=resume")
    assert fresh.finish() == 0, fresh.text()[-6000:]
    same_results(fresh, undisturbed)
    warned(fresh)
    cancelled(fresh, ranking, ranked)
    out_of_memory(fresh)
    node_failed(fresh, failed)


# The first attempt at the teacher would need more than its minute; every attempt at images needs 2 GB.
SLOW = """import time
import hald.squeeze
quick = hald.squeeze._epoch
hald.squeeze._epoch = lambda *a: (time.sleep(1.5 if snakemake.resources.runtime == 1 else 0), quick(*a))[1]
"""
HOG = """import time
HOG = bytearray(b"1") * (2 << 30)
time.sleep(3)  # Slurm looks every second
"""


def put_before(project: Project, script: str, code: str) -> None:
    """Have a rule's script do something first. (Scripts are no part of any key.)"""
    begin = "with job(snakemake) as work:"
    project.edit(f"workflow/scripts/{script}.py", begin, f"{code}\n{begin}")


def limit(project: Project, rule: str, **resources: str) -> None:
    """Give a rule other resources in the profile. (On the command line they would replace all those of the profile.)"""
    path = project.folder / "slurm/config.yaml"
    profile = yaml.safe_load(path.read_text())
    profile["set-resources"][rule] |= {name: yaml.safe_load(value) for name, value in resources.items()}
    path.write_text(yaml.safe_dump(profile))


def warned(run: Run) -> None:
    """The teacher saved when the warning came, and lost nothing: not one epoch was trained twice."""
    first, second = sorted(run.jobs("squeeze"), key=lambda job: job.number)
    assert (first.state, second.state) == ("FAILED", "COMPLETED")
    assert (first.minutes, second.minutes) == (1, 2)
    assert first.ended - first.started < 60  # it went before it was killed
    text = run.log("squeeze")
    kept = int(re.findall(r"goes on after epoch (\d+)", text)[0])
    assert 0 < kept < EPOCHS
    assert "stopped by SIGUSR1; what was done is kept" in text
    print(f"time limit: 0 of {EPOCHS} epochs repeated (stopped and resumed after epoch {kept})")


def cancelled(run: Run, ranking: SlurmJob, ranked: int) -> None:
    """The classes that were ranked stayed; the one in hand, at most, was begun again."""
    states = {job.number: job.state for job in run.jobs("rank")}
    assert states.pop(ranking.number) == "CANCELLED"
    assert list(states.values()) == ["COMPLETED"]
    left = int(re.findall(r"(\d+) of units 0-9 to compute", run.log("rank"))[-1])
    assert left <= UNITS - ranked
    print(f"scancel: {UNITS - left} of {UNITS} classes kept, at most 1 repeated")


def out_of_memory(run: Run) -> None:
    """A job above its memory is killed, and has more the second time."""
    first, *_, last = sorted(run.jobs("recover"), key=lambda job: job.number)
    assert first.state in ("OUT_OF_MEMORY", "FAILED", "CANCELLED")
    assert last.state == "COMPLETED"
    assert last.memory > first.memory == 1500
    print(f"memory: {first.state} with {first.memory} MB, {last.state} with {last.memory} MB; no unit had begun")


def node_failed(run: Run, failed: SlurmJob) -> None:
    """Slurm starts the job of a failed node on another one, and it goes on from its checkpoint."""
    (job,) = [job for job in run.jobs("evaluate") if job.number == failed.number]
    assert job.state == "COMPLETED"
    assert job.restarts == 1
    assert job.node != failed.node
    kept = int(re.findall(r"goes on after epoch (\d+)", run.log("evaluate"))[0])
    assert kept % INTERVAL["evaluate"] == 0
    print(f"node down: resumed after epoch {kept}; at most {INTERVAL['evaluate']} epochs repeated")


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
    assert all(str(job.number) in untrained.call("hald.cli", "jobs", "ls").stdout for job in orphans)
    assert untrained.call("hald.cli", "jobs", "wait").returncode == 0
    assert {job.state for job in untrained.jobs("evaluate")} == {"COMPLETED"}
    untrained.start()
    assert untrained.finish() == 0, untrained.text()[-6000:]
    same_results(untrained, undisturbed)
    jobs = untrained.jobs("evaluate")
    assert len(jobs) == len(orphans)  # what they finished was not done again
    assert "goes on after" not in untrained.log("evaluate")  # nor interrupted


def test_jobs_that_a_killed_main_process_left_can_be_stopped_and_resumed(untrained: Run, undisturbed: Project) -> None:
    untrained.start()
    untrained.until(lambda: untrained.files(".partial/*/seed-*/checkpoint.json"))
    assert untrained.process is not None
    os.kill(untrained.process.pid, signal.SIGKILL)
    untrained.finish()
    assert untrained.call("snakemake", "--unlock").returncode == 0
    assert untrained.call("hald.cli", "jobs", "stop").returncode == 0
    assert "stopped by SIGUSR1; what was done is kept" in untrained.log("evaluate")
    untrained.start()
    assert untrained.finish() == 0, untrained.text()[-6000:]
    same_results(untrained, undisturbed)
    assert "goes on after epoch" in untrained.log("evaluate")
    for a, b in combinations(untrained.jobs("evaluate"), 2):
        assert a.what != b.what or a.ended <= b.started or b.ended <= a.started, "two jobs at the same work at once"
