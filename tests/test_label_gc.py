"""`hald labels gc`: lists what nobody needs, and never removes what somebody may want."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import TINY_DEMO, copy_known
from hald.cli.main import main
from hald.files import aside, write_json
from hald.jobs.claims import Claim
from hald.labels.store import LabelStore
from hald.pipeline import FROZEN, make_plan
from killing import finish, start

LABELS = Path("results/labels/digits")
Run = Callable[..., str]


@pytest.fixture
def gc(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command in a project whose one store was made for an experiment that is no more."""
    folder = tmp_path / "project"
    copy_known(folder / "config")
    (folder / "config/config.yaml").write_text("experiments: [tiny]\n")
    (folder / "config/experiments/tiny.yaml").write_text(TINY_DEMO)
    monkeypatch.chdir(folder)
    shutil.copytree(store, unneeded(store))

    def run(*arguments: str) -> str:
        assert main(["labels", "gc", *arguments]) == 0
        return capsys.readouterr().out

    return run


def unneeded(store: Path) -> Path:
    return LABELS / f"gone-ipc2-resnet10-w4_{LabelStore(store).header.key}.zarr"


def test_it_lists_with_age_owner_size_and_reason_and_removes_only_when_told(gc: Run, store: Path) -> None:
    path = unneeded(store)
    old = time.time() - 3 * 86400
    for marker in (path / "views").iterdir():
        os.utime(marker, (old, old))
    out = gc()
    assert f"{path}  " in out
    assert f"last written 3.0 days ago, of {path.owner()}" in out
    assert "kB," in out
    assert "no experiment has digits/gone-ipc2-resnet10-w4" in out
    assert "1 not needed (" in out
    assert "remove with `hald labels gc --remove`" in out
    assert path.exists()
    out = gc("--remove")
    assert f"removed {path}\n" in out
    assert not path.exists()
    assert list(LABELS.iterdir()) == []
    assert "every store is needed by an experiment" in gc()


def test_a_needed_store_is_not_listed_and_todays_is_named_beside_one_of_other_code(gc: Run, store: Path) -> None:
    plan = make_plan()
    key = next(iter(plan.labels))
    unneeded(store).rename(plan.folder("relabel", key))
    assert "nothing to remove: every store is needed" in gc()
    older = plan.folder("relabel", key).with_name(f"rded-ipc2-resnet10-w4_{LabelStore(store).header.key}.zarr")
    plan.folder("relabel", key).rename(older)
    assert f"settings or code have changed; today's store is {plan.folder('relabel', key).name}" in gc()


def test_a_store_that_is_being_written_stays(gc: Run, store: Path) -> None:
    path = unneeded(store)
    with Claim(path / "claims/00002.json"):
        out = gc("--remove", "--imported")
        assert "kept: view 2 is being written by" in out
        assert f"process {os.getpid()}" in out
        assert path.exists()
    write_json(path / "claims/00003.json", {"user": "x", "host": os.uname().nodename, "pid": 2**22 + 1, "since": 0})
    assert f"removed {path}" in gc("--remove")  # that claim's owner is gone


def test_imported_stores_and_names_of_ones_own_need_a_flag(gc: Run, store: Path) -> None:
    imported, own = LABELS / "from-a-friend.zarr", LABELS / "mine_0123456789.zarr"
    shutil.copytree(unneeded(store), own)  # the key in its name is not that of its header
    unneeded(store).rename(imported)
    group = json.loads((imported / "zarr.json").read_text())
    group["attributes"] |= {"key": "imported", "spec": {"imported": "x"}, "teachers": []}
    (imported / "zarr.json").write_text(json.dumps(group))
    out = gc("--remove")
    assert "was imported; kept: goes only with --imported" in out
    assert "has a name of its own; kept: goes only with --imported" in out
    assert imported.exists()
    assert own.exists()
    assert "removed 2" in gc("--remove", "--imported")
    assert list(LABELS.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_what_others_made_or_grew_needs_a_flag(gc: Run, store: Path) -> None:
    """Their experiments are in their checkouts: from ours nobody can tell what they need."""
    grown, theirs = unneeded(store), LABELS / f"theirs-ipc2-resnet10-w4_{LabelStore(store).header.key}.zarr"
    shutil.copytree(grown, theirs)
    os.chown(grown / "views/00001.json", 54321, -1)
    os.chown(theirs, 54321, -1)
    out = gc("--remove")
    assert out.count("kept: 54321 made it; goes only with --others") == 2
    assert "nothing to remove: all of this is kept" in out
    assert "removed 2" in gc("--remove", "--others")


def test_a_store_that_cannot_be_read_is_left_to_people(gc: Run, store: Path) -> None:
    (unneeded(store) / "zarr.json").write_text("{")
    assert "cannot be read" in gc("--remove", "--imported")
    assert unneeded(store).exists()


def age(folder: Path, seconds: float) -> None:
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (time.time() - seconds, time.time() - seconds))


def die_while_building(target: Path) -> None:
    """A process that is killed when it has half made a store."""
    building = aside(target)
    (building / "q").mkdir(parents=True)
    (building / "q/zarr.json").write_text("{}")
    os.kill(os.getpid(), 9)


@pytest.mark.slow
def test_folders_of_killed_processes_are_found_and_those_of_living_ones_kept(gc: Run, store: Path) -> None:
    shutil.rmtree(unneeded(store))
    assert finish(start(die_while_building, LABELS.resolve() / "x.zarr")) == -9
    (dead,) = LABELS.iterdir()
    assert "may be at work on it" in gc("--remove")  # written to a moment ago: a process elsewhere may share host names
    age(dead, 600)
    living = aside(LABELS / "y.zarr")
    living.mkdir()
    age(living, 600)
    elsewhere = LABELS / ".z.zarr~otherhost~1~0123abcd"
    nameless = LABELS / f".w.zarr.{'0' * 32}"
    for folder in (elsewhere, nameless):
        folder.mkdir()
        age(folder, 3600)
    out = gc("--remove")
    assert f"removed {dead}\n" in out
    assert "began it and did not finish" in out
    assert sorted(LABELS.iterdir()) == sorted([living, elsewhere, nameless])
    for folder in (elsewhere, nameless):
        age(folder, 2 * 86400)
    gc("--remove")
    assert list(LABELS.iterdir()) == [living]


def test_plans_older_than_a_day_go_unless_snakemake_runs(gc: Run, store: Path) -> None:
    shutil.rmtree(unneeded(store))
    old, new = (FROZEN / name for name in ("old.json", "new.json"))
    for path in (old, new):
        write_json(path, {})
    os.utime(old, (time.time() - 2 * 86400,) * 2)
    lock = Path(".snakemake/locks/0.input.lock")
    write_json(lock, {})
    assert "kept: snakemake runs in this folder" in gc("--remove")
    assert old.exists()
    lock.unlink()
    assert f"removed {old}" in gc("--remove")
    assert not old.exists()
    assert new.exists()
