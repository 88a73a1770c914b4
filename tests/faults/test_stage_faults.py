"""Six faults, each while something is made and on what is used, in every stage: the twelve cases.

                  making                                  using
    killed        resumed to the same bytes               a torn checkpoint starts anew
    full disk     nothing half is taken for whole         (labels: what was done is kept, test_label_faults.py)
    corrupt       (labels: test_label_faults.py)                refused, and the message says what to do
    raced         two jobs at once, everything once       a claim of a dead owner is taken over
    read-only     refused in words                        read without writing
    mis-ordered   nothing is made from it                 teachers, images and labels of another class order or data

Labels, which are shared between users, have more of each in test_label_faults.py.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from stages import PIECES, STAGES, Given, doomed, raced, results, work

from conftest import made_once
from hald.datasets.reader import open_dataset
from hald.errors import UserError
from hald.files import explained
from hald.jobs.claims import Claim
from hald.synthesis.class_statistics import load_statistics
from hald.synthesis.unit_files import load_unit
from killing import CONTEXT, finish, start

TEACHERLESS = ("squeeze", "evaluate")  # stages that have no teacher among their inputs


@pytest.fixture(scope="session")
def given(digits: Path, teacher: Path, real_set: Path, first_store: Path) -> Given:
    return Given(digits, teacher, real_set, first_store)


@pytest.fixture
def whole(stage: str, given: Given, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the stage of a test makes undisturbed."""
    return made_once(tmp_path_factory, f"whole-{stage}", lambda folder: work(stage, given, folder))


@contextmanager
def disk(folder: Path, options: str) -> Iterator[Path]:
    """A small file system of its own."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True).returncode:
        pytest.skip("cannot mount a tmpfs here (needs root)")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("stage", STAGES)
def test_killed_and_resumed_to_the_same_bytes(
    stage: str, number: int, given: Given, whole: Path, tmp_path: Path
) -> None:
    assert finish(start(doomed, stage, given, tmp_path / "killed", number)) == -signal.SIGKILL
    work(stage, given, tmp_path / "killed")
    assert results(tmp_path / "killed") == results(whole)


@pytest.mark.parametrize("stage", ["squeeze", "evaluate"])
def test_a_torn_checkpoint_starts_anew(stage: str, given: Given, whole: Path, tmp_path: Path) -> None:
    for folder in ("", "seed-0"):
        torn = tmp_path / "torn/partial" / folder / "checkpoint.pt"
        torn.parent.mkdir(parents=True, exist_ok=True)
        torn.write_bytes(b"PK\x03\x04 torn")
    work(stage, given, tmp_path / "torn")
    (tmp_path / "torn/partial/checkpoint.pt").unlink(missing_ok=True)
    assert results(tmp_path / "torn") == results(whole)


@pytest.mark.parametrize("stage", STAGES)
def test_a_full_disk_leaves_nothing_half(stage: str, given: Given, whole: Path, tmp_path: Path) -> None:
    with disk(tmp_path / "disk", "size=12k,nr_inodes=40") as small:
        with pytest.raises(UserError, match=r"disk .*is full|the disk is full") as refusal, explained("it"):
            work(stage, given, small / "results")
        assert "No space left" not in str(refusal.value).split(":")[0]
        subprocess.run(["mount", "-o", "remount,size=50m,nr_inodes=5000", str(small)], check=True)
        work(stage, given, small / "results")
        assert results(small / "results") == results(whole)


@pytest.mark.parametrize("stage", STAGES)
def test_two_jobs_at_the_same_work_do_it_once(stage: str, given: Given, whole: Path, tmp_path: Path) -> None:
    together, moved = CONTEXT.Barrier(2), tmp_path / "moved"
    processes = [start(raced, stage, given, tmp_path / "raced", together, moved) for _ in range(2)]
    assert [finish(process) for process in processes] == [0, 0]
    assert results(tmp_path / "raced") == results(whole)
    count = Counter(moved.read_text().split())
    assert [count[piece] for piece in PIECES[stage]] == [1] * len(PIECES[stage])


@pytest.mark.parametrize("stage", STAGES)
def test_a_read_only_place_is_said_in_words(stage: str, given: Given, tmp_path: Path) -> None:
    with (
        disk(tmp_path / "disk", "ro") as sealed,
        pytest.raises(UserError, match="read-only"),
        explained("this job could not write"),
    ):
        work(stage, given, sealed / "results")


@pytest.mark.parametrize("stage", STAGES)
def test_read_only_inputs_are_enough(stage: str, given: Given, whole: Path, tmp_path: Path) -> None:
    """Another user's datasets, teachers and stores, on a file system that nobody may write to."""
    with disk(tmp_path / "disk", "size=50m") as sealed:
        copies = {name: Path(shutil.copytree(path, sealed / name)) for name, path in vars(given).items()}
        subprocess.run(["mount", "-o", "remount,ro", str(sealed)], check=True)
        work(stage, Given(**copies), tmp_path / "results")
    assert results(tmp_path / "results") == results(whole)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()  # it may be a hard link to what other tests use
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage not in TEACHERLESS])
def test_a_corrupt_teacher_is_refused(stage: str, given: Given, tmp_path: Path) -> None:
    bad = Path(shutil.copytree(given.teacher, tmp_path / "teacher"))
    damage(bad / "teacher.safetensors")
    with pytest.raises(UserError, match="teacher"):
        work(stage, given.but(teacher=bad), tmp_path / "results")
    assert not [path for path in (tmp_path / "results").glob("[!p]*/**/*") if path.is_file()]  # but partial/


@pytest.mark.parametrize("stage", STAGES)
def test_a_corrupt_source_is_refused(stage: str, given: Given, tmp_path: Path) -> None:
    """A dataset's manifest, or the record of the image set that labels are made for."""
    name, record = ("images", "image_set.json") if stage == "relabel" else ("digits", "manifest.json")
    bad = Path(shutil.copytree(getattr(given, name), tmp_path / name))
    (bad / record).write_text("{")
    with pytest.raises(UserError, match=record):
        work(stage, given.but(**{name: bad}), tmp_path / "results")
    assert not results(tmp_path / "results")


def test_corrupt_units_and_statistics_are_refused(given: Given, tmp_path: Path) -> None:
    work("recover", given, tmp_path)
    damage(tmp_path / "units/00001.npz")
    with pytest.raises(UserError, match=r"unit .*00001.npz cannot be read .*remove it and run again"):
        load_unit(tmp_path / "units", 1)
    work("statistics", given, tmp_path)
    damage(tmp_path / "statistics/statistics.safetensors")
    with pytest.raises(UserError, match="statistics .* are damaged; remove"):
        load_statistics(tmp_path / "statistics", open_dataset(given.digits), torch.device("cpu"))


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage not in TEACHERLESS])
def test_a_teacher_of_another_class_order_is_refused(stage: str, given: Given, tmp_path: Path) -> None:
    other = Path(shutil.copytree(given.teacher, tmp_path / "teacher"))
    record = json.loads((other / "teacher.json").read_text())
    record["classes"] = record["classes"][::-1]
    (other / "teacher.json").unlink()
    (other / "teacher.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="class order"):
        work(stage, given.but(teacher=other), tmp_path / "results")


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != "squeeze"])
def test_data_of_one_name_but_other_content_are_refused(stage: str, given: Given, tmp_path: Path) -> None:
    """The teacher (when training a student: the labels) was made from other images than the dataset."""
    name, record, field = ("digits", "manifest.json", "digest")
    if stage == "relabel":
        name, record, field = ("images", "image_set.json", "dataset_digest")
    other = Path(shutil.copytree(getattr(given, name), tmp_path / name))
    content = json.loads((other / record).read_text())
    content[field] = "0" * 64
    (other / record).unlink()
    (other / record).write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"comes from other real images \(digest \w{8}\) than .* \(00000000\)"):
        work(stage, given.but(**{name: other}), tmp_path / "results")
    made = [path for path in (tmp_path / "results").rglob("*") if "partial" not in path.parts]
    assert not [path for path in made if path.name in PIECES[stage]]


def test_a_claim_of_a_slurm_job_that_is_over_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On another node there is no process to look at; Slurm is believed once the heartbeat has missed some beats."""
    path = tmp_path / "claim"
    owner = {"user": "x", "host": "node7", "pid": 1, "since": 1.0, "slurm": "77"}

    def left(silent: float) -> None:
        path.write_text(json.dumps(owner))
        os.utime(path, (time.time() - silent,) * 2)

    cases = ((True, 70, False), (None, 70, False), (False, 70, True), (False, 10, False), (True, 1000, False))
    for running, silent, granted in cases:
        left(silent)
        monkeypatch.setattr(
            "hald.jobs.claims.runs_now", lambda number, answer=running: answer if number == "77" else None
        )
        with Claim(path) as claim:
            assert claim.granted is granted
    left(70)
    monkeypatch.setattr("hald.jobs.claims.runs_now", lambda number: True)
    monkeypatch.setenv("SLURM_JOB_ID", "77")  # we are that job, started again after its node failed
    with Claim(path) as claim:
        assert claim.granted
