"""Label stores under kills, races, full disks and damage: nothing lost, nothing half-accepted, a clear message."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import zarr

from conftest import Training, labels_spec, make_labels, run_spec
from hald.errors import UserError
from hald.files import read_json, write_json
from hald.jobs import claims as claim_module
from hald.jobs.claims import Claim
from hald.labels.store import LabelStore
from hald.labels.verify import verify_store
from killing import finish, relabel_job, start

CPU = torch.device("cpu")
VIEWS = 5


def markers(store: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (store / "views").glob("*.json")}


@pytest.mark.slow
def test_twenty_kills_and_resumes_end_in_the_same_store(real_set: Path, teacher: Path, tmp_path: Path) -> None:
    whole = make_labels(labels_spec(), real_set, [teacher], tmp_path / "whole.zarr", range(VIEWS))
    kills = [("rename", 1), ("rename", 2), ("rename", 5), ("rename", 9), ("marker", 1), ("marked", 1)]
    kills += [("write", n) for n in (1, 4, 9, 14)] + [("marker", 1), ("rename", 12), ("write", 7)]
    kills += [("time", n) for n in (1, 10, 20, 40, 60, 80, 100)]
    assert len(kills) == 20
    store, deaths = tmp_path / "killed.zarr", Counter()
    for phase, number in kills:
        process = start(relabel_job, real_set, teacher, store, phase, number, range(VIEWS))
        deaths[phase] += finish(process) == -signal.SIGKILL
        if (store / "zarr.json").exists():
            opened = LabelStore(store)
            for view in opened.views():
                opened.check(view)  # what is marked is whole, at every moment
    assert all(deaths[phase] for phase in ("write", "rename", "marker", "marked", "time")), deaths
    assert finish(start(relabel_job, real_set, teacher, store, "", 0, range(VIEWS))) == 0
    assert markers(store) == markers(whole)
    assert list(verify_store(store)) == []
    assert not any((store / "claims").iterdir())


@pytest.mark.slow
def test_four_writers_fill_four_blocks_and_two_runs_race_for_one_store(
    real_set: Path, teacher: Path, tmp_path: Path
) -> None:
    whole = make_labels(labels_spec(), real_set, [teacher], tmp_path / "whole.zarr", range(8))
    store = tmp_path / "raced.zarr"
    blocks = [range(i, i + 2) for i in range(0, 8, 2)] + [range(8), range(8)]
    processes = [start(relabel_job, real_set, teacher, store, "", 0, block) for block in blocks]
    assert [finish(process) for process in processes] == [0] * 6
    assert markers(store) == markers(whole)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_claim_is_exclusive_and_a_dead_owners_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "claims/00000.json"
    with Claim(path) as mine:
        assert mine.granted
        with Claim(path) as theirs:
            assert not theirs.granted
            assert f"process {os.getpid()}" in theirs.holder()
        assert path.exists()
    assert not path.exists()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    write_json(path, {"user": "x", "host": os.uname().nodename, "pid": gone.pid, "since": time.time()})
    with Claim(path) as claim:
        assert claim.granted


def test_a_claim_from_another_host_is_stale_without_a_heartbeat(tmp_path: Path) -> None:
    path = tmp_path / "claim.json"
    write_json(path, {"user": "x", "host": "elsewhere", "pid": 1, "since": time.time()})
    with Claim(path) as claim:
        assert not claim.granted
    os.utime(path, (time.time() - 1000, time.time() - 1000))
    with Claim(path) as claim:
        assert claim.granted


def test_a_claim_is_kept_fresh_while_its_owner_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others judge by its age: it beats, also when it was looked at long ago, and stops with its owner."""
    monkeypatch.setattr(claim_module, "HEARTBEAT", 0.02)
    path = tmp_path / "claim.json"
    with Claim(path) as mine:
        assert mine.granted
        for _ in range(2):
            os.utime(path, (1.0, 1.0))
            until = time.monotonic() + 30
            while path.stat().st_mtime < 2.0 and time.monotonic() < until:
                time.sleep(0.01)
            assert time.time() - path.stat().st_mtime < 30
    assert not path.exists()
    assert claim_module.SILENT > 2 * 20.0  # some beats may be missed on a slow file system
    assert claim_module.STALE > 2 * claim_module.SILENT


def test_a_claim_that_changed_hands_meanwhile_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two find the same dead owner's claim; the slower one must not take the quicker one's new claim away."""
    path = tmp_path / "claim.json"
    write_json(path, {"user": "x", "host": os.uname().nodename, "pid": 2**22 + 1, "since": 1.0})
    quicker = Claim(path)
    holder = Claim.holder

    def overtaken(claim: Claim) -> str:  # the slower one has looked, and is about to remove what it saw
        monkeypatch.setattr(Claim, "holder", holder)
        assert quicker.__enter__().granted
        return holder(claim)

    monkeypatch.setattr(Claim, "holder", overtaken)
    with Claim(path) as slower:
        assert not slower.granted
    assert f"process {os.getpid()}" in quicker.holder()
    assert [file.name for file in tmp_path.iterdir()] == ["claim.json"]
    quicker.__exit__()
    assert not path.exists()


def test_an_owner_that_lost_its_claim_leaves_the_new_ones_alone(tmp_path: Path) -> None:
    path = tmp_path / "claim.json"
    other = {"user": "y", "host": "elsewhere", "pid": 2, "since": 2.0}
    with Claim(path) as mine:
        assert mine.granted
        write_json(path, other)  # it was silent too long, and another has taken over
    assert read_json(path) == other


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system of our own needs root")
def test_a_full_disk_keeps_what_was_done(real_set: Path, teacher: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(disk)]).returncode:
        pytest.skip("cannot mount a tmpfs here")
    try:
        with pytest.raises(UserError, match=r"disk of .* is full: view \d+ was not kept, the views before it are safe"):
            make_labels(labels_spec(), real_set, [teacher], disk / "s.zarr", range(200))
        store = LabelStore(disk / "s.zarr")
        kept = store.views()
        assert kept == list(range(len(kept)))
        for view in kept:
            store.check(view)
        bigger = shutil.copytree(disk / "s.zarr", tmp_path / "bigger.zarr")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    make_labels(labels_spec(), real_set, [teacher], bigger, range(len(kept) + 2))
    whole = make_labels(labels_spec(), real_set, [teacher], tmp_path / "whole.zarr", range(len(kept) + 2))
    assert markers(bigger) == markers(whole)


def edit_header(store: Path, **changes: object) -> None:
    group = json.loads((store / "zarr.json").read_text())
    group["attributes"] |= changes
    (store / "zarr.json").write_text(json.dumps(group))


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(bytes(content))


LOST_IMAGES = (
    r"images in label store .* are (damaged|not those its labels were made for).* 2 views of 20 labels are as they "
    r"were.*image set 2222222222.*rm -r .*/images && cp -r <that folder>/images .*hald labels verify"
)

# What is done to the store, what `verify` says, and what the trainer says (None: it does not use that part).
DAMAGE = {
    "flipped bit": (
        lambda s: flip_bit(s / "q/c/1/0/0"),
        r"array q view 1: chunk 0 of .* is damaged",
        "array q is damaged",
    ),
    "flipped box": (
        lambda s: flip_bit(s / "box/c/0/0/0"),
        r"array box view 0: chunk 0 .* damaged",
        "array box is damaged",
    ),
    "truncated": (
        lambda s: os.truncate(s / "q/c/0/0/0", 40),
        "array q view 0: .* has 40 bytes",
        "of view 0 has 40 bytes",
    ),
    "empty": (
        lambda s: os.truncate(s / "scale/c/1/0", 0),
        "array scale view 1: .* has 0 bytes",
        "of view 1 has 0 bytes",
    ),
    "missing": (lambda s: (s / "q/c/1/0/0").unlink(), "array q view 1: .* is missing", "array q of view 1 is missing"),
    "marker": (
        lambda s: (s / "views/00001.json").unlink(),
        "view 1: has data but no marker",
        "view 1 of .* is not complete",
    ),
    "class order": (
        lambda s: edit_header(s, classes=[str(9 - i) for i in range(10)]),
        "class order .* its teacher has",
        "class order .* dataset .* has",
    ),
    "batch size": (lambda s: edit_header(s, batch=4), "batches of 4, that is 5 batches", "batches of 4 at 32 px"),
    "future format": (
        lambda s: edit_header(s, format=99),
        "has format 99.*update",
        "has format 99.*update this package",
    ),
    "settings": (lambda s: edit_header(s, spec=json.loads(json.dumps(altered()))), "do not give its key", None),
    "teacher": (lambda s: flip_bit(s / "teachers/0/teacher.safetensors"), "weights of teacher 0 are not those", None),
    "no teacher": (lambda s: shutil.rmtree(s / "teachers"), "weights of teacher 0 are gone", None),
    "codec": (
        lambda s: edit_header(s, codec="f16"),
        "header says codec f16, for which array q would be float16, but it is uint8",
        "header says codec f16",
    ),
    "unknown codec": (lambda s: edit_header(s, codec="u7"), "has codec u7, this version knows f16, ", "has codec u7"),
    "seed": (lambda s: edit_header(s, view_settings=reseeded(s)), "codec or seed are not those", None),
    "marker content": (
        lambda s: (s / "views/00001.json").write_text("{"),
        "the marker of view 1 is damaged",
        "the marker of view 1 is damaged .* remove .*00001.json and run again",
    ),
    "metadata": (
        lambda s: (s / "q/zarr.json").write_text("{"),
        "its metadata are damaged, array q cannot be opened",
        "its metadata are damaged, array q cannot be opened",
    ),
    "group metadata": (
        lambda s: (s / "zarr.json").write_text("{"),
        "its metadata are damaged, .*zarr.json cannot be read",
        "its metadata are damaged, .*zarr.json cannot be read",
    ),
    "images": (lambda s: flip_bit(s / "images/c/0/0/0/0"), LOST_IMAGES, LOST_IMAGES),
    "no images": (lambda s: shutil.rmtree(s / "images"), LOST_IMAGES, LOST_IMAGES),
    "a missing image chunk": (lambda s: (s / "images/c/9/0/0/0").unlink(), "not those its labels", "not those its"),
}


def reseeded(store: Path) -> dict[str, object]:
    return LabelStore(store).header.view_settings | {"seed": 1}


def altered() -> dict[str, object]:
    from hald.plain import to_dict

    return to_dict(labels_spec(flip=0.25))


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_by_verify_and_refused_by_the_trainer(
    name: str, store: Path, digits: Path, tmp_path: Path
) -> None:
    damage, verified, refused = DAMAGE[name]
    private = shutil.copytree(store, tmp_path / "private.zarr")  # images are hard links: do not damage the original
    assert list(verify_store(private)) == []
    damage(private)
    problems = [str(problem) for problem in verify_store(private)]
    assert len(problems) == 1
    assert re.search(verified, problems[0]), problems
    if refused:
        with pytest.raises(UserError, match=refused):
            Training(digits, private, tmp_path).train(run_spec())
        assert not (tmp_path / "records/seed-0.json").exists()


def rewrite(store: Path, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Other content of an array's view 0, in a whole file with the right hash."""
    array = zarr.open_group(store, mode="r+")[name]
    array[0] = change(array[0])
    marker, file = store / "views/00000.json", LabelStore(store).file(name, 0)
    record = json.loads(marker.read_text())
    record["files"][name] |= {"bytes": file.stat().st_size, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    write_json(marker, record)


@pytest.mark.parametrize("name", ["image", "box", "flip", "partner", "cut"])
def test_deep_verification_draws_the_geometry_again(name: str, store: Path) -> None:
    def change(values: np.ndarray) -> np.ndarray:
        return 1 - values if name == "flip" else np.concatenate([values[1::-1], values[2:]])

    rewrite(store, name, change)
    assert list(verify_store(store)) == []
    problems = [str(problem) for problem in verify_store(store, deep=2)]
    assert any(f"array {name} view 0" in problem and "is not what its seed draws" in problem for problem in problems)


def test_deep_verification_recomputes_labels(store: Path) -> None:
    assert list(verify_store(store, deep=2)) == []
    edit_header(store, view_settings=LabelStore(store).header.view_settings | {"scale": [0.9, 1.0]})
    problems = [str(problem) for problem in verify_store(store, deep=1)]
    assert any("is not what its seed draws" in problem for problem in problems)


def test_deep_verification_notices_labels_that_are_not_the_teachers(store: Path) -> None:
    """Whole files with right hashes, but every logit of view 0 is a hundredth too large."""
    assert list(verify_store(store, deep=2)) == []
    rewrite(store, "scale", lambda scale: scale * np.float32(1.01))
    assert list(verify_store(store)) == []
    (problem,) = map(str, verify_store(store, deep=2))
    assert re.search(r"view 0: labels differ from the teacher's by \d+\.\d+ beyond rounding", problem)
