"""Adopting a store that other code made: checked field by field, recorded, and without touching the old one."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conftest import TINY_DEMO, copy_known
from hald.errors import UserError
from hald.files import file_digest
from hald.labels.adopt import adopt
from hald.labels.info import describe
from hald.labels.relabel import Places, relabel
from hald.labels.store import LabelStore
from hald.labels.verify import verify_store
from hald.plan import Plan, make_plan
from hald.provenance import key_of
from hald.specs.base import Identity
from hald.specs.labels import LabelsSpec

OLD_CODE = "0" * 64
TWICE = {
    "images": {"again": {"method": "real", "seed": 7}},
    "tables": {"other": {"images": ["real", "again"], "rows": ["images"]}},
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    copy_known(folder / "config")
    (folder / "config/experiments/tiny.yaml").write_text(TINY_DEMO)
    monkeypatch.chdir(folder)
    return folder


def plan_of(**override: object) -> Plan:
    return make_plan({"experiments": ["tiny"], "override": {"tiny": override}})


def real_key(plan: Plan) -> str:
    return next(key for key, spec in plan.labels.items() if plan.images[spec.images].method == "real")


def provide(plan: Plan, real_set: Path, teacher: Path) -> None:
    """Image sets and teacher where the plan looks for them."""
    for spec in plan.labels.values():
        if plan.images[spec.images].method == "real":
            shutil.copytree(real_set, plan.images_dir(spec.images), dirs_exist_ok=True)
            shutil.copytree(teacher, plan.teacher_dir(spec.teachers[0]), dirs_exist_ok=True)


def old_store(spec: LabelsSpec, real_set: Path, teacher: Path, views: int = 2) -> Path:
    """What the same settings gave under other code."""
    identity = Identity(key_of("relabel", spec, OLD_CODE), OLD_CODE)
    path = Path(f"results/labels/digits/real-ipc2-resnet10-w4_{identity.key}.zarr")
    relabel(spec, Places(real_set, [teacher], path), range(views), 0.0, torch.device("cpu"), identity)
    return path


def hashes(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): file_digest(path) for path in folder.rglob("*") if path.is_file()}


def test_an_adopted_store_is_the_plans_own_and_the_old_one_stays(root: Path, real_set: Path, teacher: Path) -> None:
    plan = plan_of()
    key = real_key(plan)
    provide(plan, real_set, teacher)
    # other code gave other keys to images and teacher too: what they are is compared, not what they are called
    old = old_store(replace(plan.labels[key], images="a" * 10, teachers=("b" * 10,)), real_set, teacher)
    before = hashes(old)
    new = adopt(old, plan)
    assert new == plan.store_dir(key)
    assert list(verify_store(new, deep=2)) == []
    store = LabelStore(new)
    assert (store.header.key, store.header.code) == (key, plan.code["relabel"])
    (entry,) = store.header.adopted
    assert (entry["key"], entry["code"], entry["views"]) == (LabelStore(old).header.key, OLD_CODE, 2)
    assert entry["from"] == str(old.resolve())
    assert "2 views made under key" in describe(store)["adopted"]
    shard = "q/c/0/0/0"
    assert (old / shard).stat().st_ino == (new / shard).stat().st_ino  # linked, not doubled
    relabel(
        plan.labels[key],
        Places(root / "none", [], new),
        range(4),
        0.0,
        torch.device("cpu"),
        Identity(key, plan.code["relabel"]),
    )
    assert LabelStore(new).views() == [0, 1, 2, 3]
    assert list(verify_store(new)) == []
    assert hashes(old) == before
    shutil.rmtree(new)
    assert list(verify_store(old)) == []
    assert [path.name for path in old.parent.iterdir()] == [old.name]


def refused(match: str, old: Path, plan: Plan, key: str | None = None) -> None:
    there = sorted(old.parent.iterdir())
    with pytest.raises(UserError, match=match):
        adopt(old, plan, key)
    assert sorted(old.parent.iterdir()) == there


def test_what_differs_is_named(root: Path, real_set: Path, teacher: Path) -> None:
    plan = plan_of()
    key = real_key(plan)
    spec = plan.labels[key]
    provide(plan, real_set, teacher)
    other = old_store(replace(spec, seed=1, mix="none"), real_set, teacher, 0)
    refused(r"Nearest is real-ipc2.*differs in mix \(none in the store, cutmix in the plan\); seed \(1 in", other, plan)
    other = old_store(replace(spec, batch=5), real_set, teacher, 0)
    refused(r"batch \(5 in the store, 16 in the plan\)", other, plan)
    fits = old_store(spec, real_set, teacher, 1)
    record = plan.images_dir(spec.images) / "image_set.json"
    content = json.loads(record.read_text())
    record.write_text(json.dumps(content | {"digest": "f" * 64}))
    refused(r"images \(digest of pixels \w+ in the store, ffffffffff in the plan\)", fits, plan)
    record.write_text(json.dumps(content | {"classes": content["classes"][::-1]}))
    refused(r"classes \(in order \['0', .* in the store, \['9'", fits, plan)
    record.write_text(json.dumps(content))
    teacher_file = plan.teacher_dir(spec.teachers[0]) / "teacher.json"
    teacher_file.write_text(json.dumps(json.loads(teacher_file.read_text()) | {"sha256": "e" * 64}))
    refused(r"weights of teacher 0 \(\w+ in the store, eeeeeeeeee in the plan\)", fits, plan)
    teacher_file.unlink()
    adopt(fits, plan)  # the teachers' keys are the same


def test_what_cannot_be_compared_is_not_adopted(root: Path, real_set: Path, teacher: Path) -> None:
    plan = plan_of()
    spec = plan.labels[real_key(plan)]
    old = old_store(replace(spec, images="a" * 10, teachers=("b" * 10,)), real_set, teacher, 1)
    refused(
        r"images \(set aaaaaaaaaa .* make the latter with `snakemake --cores all results/images/.*image_set.json`",
        old,
        plan,
    )
    refused(
        r"teacher 0 \(bbbbbbbbbb .* make the latter with `snakemake --cores all results/teachers/.*teacher.json`",
        old,
        plan,
    )


def test_damaged_imported_present_and_ambiguous_stores(root: Path, real_set: Path, teacher: Path) -> None:
    plan = plan_of(**TWICE)
    spec = plan.labels[real_key(plan)]
    provide(plan, real_set, teacher)
    old = old_store(replace(spec, images="a" * 10), real_set, teacher)
    keys = [key for key, other in plan.labels.items() if plan.images[other.images].method == "real"]
    refused(f"fits 2 stores of the plan: .*{keys[0]}.*{keys[1]}.*--as KEY", old, plan)
    refused("no label store with key 0123456789; it has", old, plan, "0123456789")
    shard = old / "q/c/1/0/0"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    refused("is not whole, so it is not adopted.*array q view 1", old, plan, keys[1])
    shard.write_bytes(whole)
    assert adopt(old, plan, keys[1]) == plan.store_dir(keys[1])
    refused("exists already, with 2 views; nothing was adopted", old, plan, keys[1])
    refused("has a key of this plan already", plan.store_dir(keys[1]), plan)
    group = json.loads((old / "zarr.json").read_text())
    group["attributes"]["key"] = "imported"
    (old / "zarr.json").write_text(json.dumps(group))
    refused("was imported: nobody knows how", old, plan)
