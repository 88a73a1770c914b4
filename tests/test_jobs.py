"""Around a job's work: signals, device leases, node-local scratch, jobs of an earlier run, sizes of jobs."""

import io
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import (
    DATA,
    TINY_DEMO,
    copy_known,
    images_spec,
    job_for,
    labels_spec,
    ranking_spec,
    run_spec,
    statistics_spec,
    teacher_spec,
    units_spec,
)
from hald.cli.main import main
from hald.cluster.queue import queued_jobs, require_no_earlier_jobs, runs_now, wait_for_jobs
from hald.errors import UserError
from hald.files import write_json
from hald.jobs.gpu_lease import lease_device, names
from hald.jobs.log import log, setup_logging
from hald.jobs.scratch import staged
from hald.jobs.signals import Interrupted, StopRequest
from hald.jobs.units import alone, missing_units
from hald.pipeline import make_plan
from hald.progress.block_sizes import SHORTEST, block_sizes, fitting
from hald.squeeze.spec import Recipe


def test_a_signal_is_remembered_until_a_loop_looks() -> None:
    with StopRequest():
        os.kill(os.getpid(), signal.SIGUSR1)  # while data are loaded
        with StopRequest() as stop:
            assert stop.save_now(7, every=10)
            with pytest.raises(Interrupted, match="SIGUSR1"):
                stop.check()
    with StopRequest() as later:
        later.check()


def test_checkpoints_come_with_epochs_and_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("hald.jobs.signals.time.monotonic", lambda: now[0])
    stop = StopRequest()
    assert [epoch for epoch in range(1, 25) if stop.save_now(epoch, 10)] == [10, 20]
    now[0] += 601
    assert stop.save_now(25, 10)
    assert not stop.save_now(26, 10)


def test_waiting_for_another_job_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hald.jobs.units.time.sleep", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    whole, block = job_for(teacher_spec(), tmp_path / "teacher", {}), job_for(ranking_spec(), tmp_path / "ranking", {})
    with alone(whole), pytest.raises(Interrupted), alone(whole):
        pytest.fail("two hold one claim")
    with block.claim(0), pytest.raises(Interrupted):
        list(missing_units(block, "units"))
    assert not list(tmp_path.rglob("*.claim")) + list(tmp_path.rglob("claims/*"))


def test_units_that_others_make_are_waited_for_after_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_for(ranking_spec(), tmp_path, {}, range(3))
    other = job.claim(0)
    made: list[int] = []

    def asleep(_: float) -> None:  # the other finishes meanwhile
        job.units[0][0].touch()
        other.__exit__()

    monkeypatch.setattr("hald.jobs.units.time.sleep", asleep)
    with other:
        for unit in missing_units(job, "units"):
            job.units[unit][0].touch()
            made.append(unit)
    assert made == [1, 2]
    assert list(missing_units(job, "units")) == []


LEASE = "import sys, hald.jobs.gpu_lease as l; print(l.lease_device(2), flush=True); sys.stdin.read()"


def test_a_line_is_said_once_in_ten_minutes() -> None:
    """Twenty views that another job computes are looked at every other second."""
    stream = io.StringIO()
    setup_logging(stream)
    for seconds in (0, 2, 4, 599, 601):
        for view in (0, 1):
            record = log.makeRecord("hald", logging.INFO, "", 0, "view %d is being computed", (view,), None)
            record.created = 1e9 + seconds
            log.handle(record)
    assert [line[9:] for line in stream.getvalue().splitlines()] == [
        f"view {v} is being computed" for v in (0, 1, 0, 1)
    ]


def test_jobs_of_one_machine_take_different_devices(tmp_path: Path) -> None:
    environment = os.environ | {"HALD_LEASES": str(tmp_path)}
    jobs: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        jobs.append(subprocess.Popen([sys.executable, "-c", LEASE], env=environment, **pipes))  # type: ignore[call-overload]
        return jobs[-1]

    first, second = begin(), begin()
    assert first.stdout and second.stdout  # noqa: PT018
    got = {first.stdout.readline().strip(): first, second.stdout.readline().strip(): second}
    assert set(got) == {"0", "1"}
    third = begin()
    got["1"].kill()  # the lease ends with its process, however that ends
    assert third.stdout
    assert third.stdout.readline().strip() == "1"
    for job in jobs:
        job.kill()
        job.communicate()


def test_a_process_keeps_its_device_and_names_are_those_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALD_LEASES", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setattr("hald.jobs.gpu_lease._held", {})
    assert names(2) == ["3", "5"]
    assert lease_device(2) == lease_device(2) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["3.lock"]


def test_a_dataset_is_staged_where_there_is_scratch(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, other = (job_for(spec, tmp_path / "out", {DATA: digits}) for spec in (teacher_spec(), run_spec()))
    monkeypatch.delenv("SLURM_TMPDIR", raising=False)
    assert staged(job) == job
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path))
    there = staged(job).made_from[DATA]
    assert there.is_relative_to(tmp_path)
    assert {p.name: p.read_bytes() for p in there.iterdir()} == {p.name: p.read_bytes() for p in digits.iterdir()}
    assert staged(job).made_from[DATA] == there
    assert [path.name for path in there.parent.iterdir()] == [there.name]
    assert staged(other).made_from[DATA] == digits  # a training of students hardly reads it
    (tmp_path / "job-7").mkdir()
    monkeypatch.setenv("JOB", "job-7")
    for own in ("$JOB", "${JOB}"):  # HALD_SCRATCH comes first, with the job's variables
        monkeypatch.setenv("HALD_SCRATCH", f"{tmp_path}/{own}")
        assert staged(job).made_from[DATA].is_relative_to(tmp_path / "job-7")
    monkeypatch.setenv("HALD_SCRATCH", "/scratch/$UNKNOWN")
    assert staged(job) == job
    monkeypatch.delenv("HALD_SCRATCH")
    monkeypatch.setattr("hald.jobs.scratch.SPARE", 1 << 60)
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path.parent))
    assert staged(job) == job  # no room


def test_amounts_of_work_by_hand() -> None:
    """What estimates and sizes of jobs multiply with recorded seconds: for one unit of each kind of work."""
    work = {
        18: ranking_spec(mipc=6, num_crop=3),  # crops of a class that are scored
        1: statistics_spec(),
        20: units_spec("sre2l"),  # five classes, four iterations
        40: units_spec("fadrm"),  # in two stages
        8: units_spec("lpld"),  # two images of a class
        30: images_spec(ipc=3),
        25: labels_spec(count=25),
        120: run_spec(),  # six epochs of twenty images
        7: teacher_spec(recipe=Recipe(epochs=7)),
        0.1: teacher_spec(recipe=None),
    }
    assert {spec.effort[1]: spec for spec in work.values()} == work
    assert run_spec().effort[0] == "evaluate small/resnet10-w4@32"


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A squeue that prints a file, and a scancel that empties it."""
    listing = tmp_path / "queue"
    for name, text in (("squeue", f"cat {listing}"), ("scancel", f"echo $@ >> {tmp_path}/cancelled; : > {listing}")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return listing


def test_a_run_does_not_start_beside_jobs_of_an_earlier_one(queue: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queue.write_text(
        f"11|RUNNING|n1|{queue.parent}|rule_evaluate_wildcards_a\n12|PENDING||{queue.parent}|rule_rank_wildcards_b\n"
        f"13|RUNNING|n2|/elsewhere|rule_rank_wildcards_b\n14|RUNNING|n2|{queue.parent}|(null)\n"
    )
    assert [job.number for job in queued_jobs(queue.parent)] == ["11", "12"]
    require_no_earlier_jobs(queue.parent, queue.parent)  # nothing was ever submitted here: nobody is asked
    (queue.parent / "slurm").mkdir()
    with pytest.raises(UserError, match=r"(?s)2 Slurm jobs of an earlier run.*11  running n1.*hald jobs wait"):
        require_no_earlier_jobs(queue.parent, queue.parent)
    assert main(["jobs"]) == 1
    assert "run from the project's root folder" in capsys.readouterr().err
    (queue.parent / ".snakemake").mkdir()
    assert main(["jobs"]) == 0
    assert "rule_evaluate_wildcards_a" in capsys.readouterr().out
    assert main(["jobs", "stop"]) == 0
    assert "no jobs of this folder are in Slurm's queue" in capsys.readouterr().out
    assert (queue.parent / "cancelled").read_text() == "--signal=USR1 11\n"
    require_no_earlier_jobs(queue.parent, queue.parent)


def test_others_comments_and_own_defaults_of_squeue_hide_nothing(queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.write_text(
        f"10|RUNNING|n1|/elsewhere|a note\nsecond line\n11|RUNNING|n1|{queue.parent}|rule_rank_wildcards_b\n"
    )
    (queue.parent / "squeue").write_text(f'#!/bin/sh\n[ -n "$SQUEUE_PARTITION" ] || cat {queue}\n')
    monkeypatch.setenv("SQUEUE_PARTITION", "gpu")
    assert [job.number for job in queued_jobs(queue.parent)] == ["11"]


def test_a_job_that_goes_back_to_the_queue_is_not_waited_for(queue: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another look shows it pending, held: it is cancelled, which empties the queue here."""
    ours = f"n1|{queue.parent}|rule_rank_wildcards_b"
    queue.write_text(f"11|RUNNING|{ours}\n")
    later = f"printf '11|PENDING|{ours}\\n' > {queue}"
    (queue.parent / "squeue").write_text(f"#!/bin/sh\ncat {queue}; [ ! -s {queue} ] || {later}\n")
    wait_for_jobs(queue.parent, interval=0.0)
    assert (queue.parent / "cancelled").read_text() == "11\n"
    assert "waiting for 11 running (rule_rank_wildcards_b)\nwaiting for 11 pending" in capsys.readouterr().out


def test_no_answer_is_not_an_empty_queue(queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    (queue.parent / "squeue").write_text("#!/bin/sh\necho 'Socket timed out' >&2; exit 1\n")
    with pytest.raises(UserError, match="Slurm does not answer"):
        queued_jobs(queue.parent)


def test_jobs_of_a_run_that_is_alive_are_left_to_it(queue: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (queue.parent / ".snakemake/locks").mkdir(parents=True)
    (queue.parent / ".snakemake/locks/0.input.lock").touch()
    assert main(["jobs", "wait"]) == 1
    assert "snakemake --unlock" in capsys.readouterr().err
    assert not (queue.parent / "cancelled").exists()


def test_without_slurm_nothing_is_known_and_nothing_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "slurm").mkdir()
    require_no_earlier_jobs(tmp_path, tmp_path)
    assert runs_now("1") is None


@given(st.floats(0.01, 1e5), st.integers(1, 5000), st.floats(60, 1e5))
def test_a_job_lasts_its_target_or_less_and_there_are_enough_jobs(seconds: float, count: int, target: float) -> None:
    size = fitting(seconds, count, target)
    assert size >= 1
    assert size == 1 or size * seconds <= 1.5 * target
    assert size * seconds < SHORTEST + seconds or -(-count // size) >= min(count, 3)


def test_sizes_follow_recorded_timings_unless_they_are_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    copy_known(tmp_path / "config")
    (tmp_path / "config/experiments/tiny.yaml").write_text(TINY_DEMO.replace("seeds: 2", "seeds: 12"))

    def planned(**jobs: object) -> tuple[set[int], set[int]]:
        plan = make_plan({"experiments": ["tiny"], "jobs": jobs})
        sizes = block_sizes(plan)
        return {sizes["evaluate", key] for key in plan.runs if plan.needed["evaluate", key] == 12}, {
            sizes["relabel", key] for key in plan.labels
        }

    assert planned() == ({3}, {20})  # no timings yet
    plan = make_plan({"experiments": ["tiny"]})
    for key, run in plan.runs.items():
        kind, work = run.effort
        timing = {"seconds": 100.0 * run.epochs, "host": "x", "device": "cpu", "kind": kind, "work": work}
        write_json(plan.folder("evaluate", key) / "timings/seed-9.json", timing)
    assert planned(target_minutes=10)[0] == {2}
    assert planned(target_minutes=60)[0] == {3}  # twelve seeds for four jobs
    assert planned(target_minutes=10, seeds_per_job=5) == ({5}, {20})
    cut = [[block.name for block in plan.blocks[key]] for key in plan.runs if plan.needed["evaluate", key] == 12]
    assert cut == [["00000-00002", "00003-00005", "00006-00008", "00009-00011"]] * 2
