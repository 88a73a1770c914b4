"""Checks before a run: what cannot be made is said before anything starts."""

import re
from pathlib import Path

import pytest

from chain import Chain, image_folders, make_chain
from conftest import job_for, labels_spec, run_spec, teacher_spec
from hald.errors import UserError
from hald.files import read_json, write_json
from hald.jobs.job import AnyJob
from hald.preflight import check_classes, check_datasets, check_networks, check_stores

TABLE = {
    "caption": "toy",
    "images": ["real"],
    "slc": [20],
    "students": ["s"],
    "evaluations": ["soft_only"],
    "rows": ["evaluation"],
    "columns": ["slc"],
}
EXPERIMENT = {
    "dataset": "toy",
    "teachers": {"t": {"arch": "small/resnet10-w4", "recipe": {"epochs": 1, "batch": 12, "crop": "resized"}}},
    "teacher": "t",
    "images": {"real": {"method": "real"}},
    "students": {"s": {"arch": "small/resnet10-w4"}},
    "epochs": 1,
}


def toy(folder: Path, ipc: int = 1, images: dict[str, object] | None = None, **changes: object) -> Chain:
    """A small experiment on three classes of four images."""
    data = folder / "data"
    if not data.exists():
        image_folders(data, {"train": 4, "val": 2}, 3, 32)
    dataset = {"source": "imagefolder", "root": str(data), "train": "train", "test": "val", "classes": 3, "size": 32}
    experiment = EXPERIMENT | {"tables": {"t": TABLE | {"ipc": [ipc]}}}
    experiment |= {"images": {"real": images}} if images else {}
    return make_chain(folder, experiment, {"toy": dataset | {"mean": [0.5] * 3, "std": [0.5] * 3} | changes})


def prepared(chain: Chain) -> Path:
    (dataset,) = chain.outputs("dataset")
    return chain.need(dataset)


def test_a_dataset_is_looked_at_before_it_is_prepared(tmp_path: Path) -> None:
    check_datasets(toy(tmp_path).plan, toy(tmp_path).plan.datasets)
    cases = {"classes": 4}, {"root": "/nowhere"}, {"test": "absent"}
    for changes, words in zip(cases, ("3 classes found .* says 4", "/nowhere", "absent"), strict=True):
        plan = toy(tmp_path, **changes).plan
        with pytest.raises(UserError, match=words):
            check_datasets(plan, plan.datasets)


def test_a_dataset_that_was_prepared_from_another_root_is_refused(tmp_path: Path) -> None:
    chain = toy(tmp_path)
    prepared(chain)
    check_datasets(chain.plan, chain.plan.datasets)
    (tmp_path / "data").rename(tmp_path / "moved")
    check_datasets(chain.plan, chain.plan.datasets)  # what is prepared needs its source no more
    plan = toy(tmp_path, root=str(tmp_path / "moved")).plan
    before, after = (re.escape(str(tmp_path / name)) for name in ("data", "moved"))
    with pytest.raises(UserError, match=f"'toy' was prepared from {before}, the config now says {after}"):
        check_datasets(plan, plan.datasets)
    check_datasets(plan, [])  # only what a run uses is looked at


@pytest.mark.parametrize("first", [False, True])
def test_a_dataset_with_too_few_images_is_refused(first: bool, tmp_path: Path) -> None:
    """Whether it is prepared already (`first`) or not: five of four images of a class cannot be chosen."""
    if first:
        prepared(toy(tmp_path))
    check_datasets(toy(tmp_path, ipc=4).plan, toy(tmp_path, ipc=4).plan.datasets)
    plan = toy(tmp_path, ipc=5).plan
    with pytest.raises(UserError, match="'toy': class 'class0' has 4 training images, .* need 5 of every class"):
        check_datasets(plan, plan.datasets)


SETS = {
    "rded": {"method": "rded", "mipc": 4, "num_crop": 1},
    "lpld": {"method": "lpld", "recover": {"budgets": [1]}},
}


@pytest.mark.parametrize(
    ("method", "rule"),
    [("rded", "rank"), ("rded", "synthesize"), ("rded", "relabel"), ("lpld", "statistics"), ("lpld", "recover")],
)
def test_a_teacher_below_the_floor_is_used_by_no_stage(method: str, rule: str, tmp_path: Path) -> None:
    """The floor is no part of a key: it may be raised when the teacher is there already."""
    low, high = (toy(tmp_path, 1, SETS[method], floor=floor) for floor in (0, 50))
    teacher = low.teacher() / "teacher.json"
    write_json(teacher, read_json(teacher) | {"top1": 49.9, "top5": 100.0})
    assert low.keys() == high.keys()
    (output,) = low.outputs(rule)
    for needed in ("dataset", "squeeze", "rank", "statistics", "recover", "synthesize"):
        if needed == rule:
            break
        for file in low.outputs(needed):
            low.need(file)
    with pytest.raises(UserError, match="reaches 49.90 % top-1, the dataset's floor is 50 %"):
        high.need(output)
    low.need(output)


@pytest.mark.parametrize("name", ["teacher.json", "image_set.json", "zarr.json"])
def test_things_of_different_class_orders_are_refused(name: str, tmp_path: Path) -> None:
    """What exists already: each against the dataset, also the second of several."""
    chain = toy(tmp_path)
    classes = read_json(prepared(chain))["classes"]
    p = chain.plan
    ((teacher,), (images,), (labels,)) = p.teachers, p.images, p.labels
    records = [p.file("squeeze", teacher), p.file("synthesize", images), p.folder("relabel", labels) / "zarr.json"]
    for record in records:
        order = classes[::-1] if record.name == name else classes
        record.parent.mkdir(parents=True, exist_ok=True)
        write_json(record, {"classes": order, "attributes": {"classes": order}})
    with pytest.raises(UserError, match=r"class order .*do not belong together.*`rm -r "):
        check_classes(p)
    write_json(
        next(record for record in records if record.name == name),
        {"classes": classes, "attributes": {"classes": classes}},
    )
    check_classes(p)


def test_a_store_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write anywhere, so the answer of the file system is set; where it is asked is checked."""
    asked: list[str] = []

    def access(path: Path, mode: int) -> bool:
        asked.append(str(path))
        return False

    (tmp_path / "shared").mkdir()
    work = [job_for(labels_spec(), tmp_path / "shared/labels.zarr", {}), job_for(run_spec(), tmp_path / "x", {})]
    monkeypatch.setattr("os.access", access)
    with pytest.raises(UserError, match=r"labels\.zarr lacks views that this run needs, and .*/shared is read-only"):
        check_stores(work)
    assert asked == [str(tmp_path / "shared")]
    (tmp_path / "shared/labels.zarr/views").mkdir(parents=True)
    with pytest.raises(UserError, match="labels.zarr/views is read-only"):
        check_stores(work)
    monkeypatch.undo()
    check_stores(work)


def test_networks_are_built_and_tried(tmp_path: Path) -> None:
    def student(arch: str = "small/resnet10-w4") -> AnyJob:
        return job_for(run_spec(arch=arch), tmp_path, {})

    def teacher(file: str) -> AnyJob:
        return job_for(teacher_spec(source="path", path=str(tmp_path / file)), tmp_path, {})

    check_networks([student(), student(), job_for(labels_spec(arch="not its own"), tmp_path, {})])
    with pytest.raises(UserError, match="unknown network 'small/nothing'"):
        check_networks([student(), student("small/nothing")])
    with pytest.raises(UserError, match=r"network torchvision/alexnet cannot take images of 32 x 32 pixels"):
        check_networks([student("torchvision/alexnet")])
    with pytest.raises(UserError, match=r"teacher weights .*/none\.pt do not exist"):
        check_networks([teacher("none.pt")])
    (tmp_path / "bad.pt").write_bytes(b"no weights")
    with pytest.raises(UserError, match=r"bad\.pt"):
        check_networks([student(), teacher("bad.pt")])  # also of a network that was built before
