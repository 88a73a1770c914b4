"""Teachers: training, resuming, other sources, the accuracy floor."""

import os
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from conftest import DATA, make, teacher_spec
from hald.errors import UserError
from hald.files import read_json
from hald.jobs.signals import Interrupted
from hald.networks.build import build_model
from hald.networks.weights import save_weights
from hald.squeeze import train as module
from hald.squeeze.spec import Recipe, TeacherSpec
from hald.squeeze.teacher import load_teacher
from hald.squeeze.train import schedule

CPU = torch.device("cpu")
CLASSES = [str(i) for i in range(10)]


def squeeze(spec: TeacherSpec, digits: Path, folder: Path) -> None:
    make(spec, folder / "teacher", {DATA: digits})


def test_a_teacher_learns_and_is_recorded(teacher: Path) -> None:
    record = read_json(teacher / "teacher.json")
    assert record["top1"] > 20  # one epoch; chance is 10
    assert record["classes"] == CLASSES
    assert record["mean"] == [0.3, 0.3, 0.3]
    assert read_json(next(teacher.glob("timings/*.json")))["kind"] == "squeeze small/resnet10-w4@32 0000000000"


@pytest.mark.slow
@pytest.mark.parametrize("crop", ["padded", "resized"])
def test_a_killed_training_goes_on_to_the_same_bytes(
    crop: str, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = teacher_spec(recipe=Recipe(epochs=2, batch=256, lr=0.05, crop=crop))  # type: ignore[arg-type]
    squeeze(spec, digits, tmp_path / "whole")
    epoch = module._epoch

    def stopped(*arguments: object) -> float:  # a signal comes in the first of two epochs
        os.kill(os.getpid(), signal.SIGUSR1)
        return epoch(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_epoch", stopped)
    with pytest.raises(Interrupted, match="SIGUSR1"):
        squeeze(spec, digits, tmp_path / "cut")
    assert not (tmp_path / "cut/teacher").exists()
    monkeypatch.setattr(module, "_epoch", epoch)
    squeeze(spec, digits, tmp_path / "cut")
    a, b = (load_file(tmp_path / name / "teacher/teacher.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_teacher_from_a_file(teacher: Path, digits: Path, tmp_path: Path) -> None:
    weights = teacher / "teacher.safetensors"
    squeeze(teacher_spec(source="path", path=str(weights)), digits, tmp_path)
    assert read_json(tmp_path / "teacher/teacher.json")["top1"] == read_json(teacher / "teacher.json")["top1"]


def test_a_file_with_another_number_of_classes_is_refused(digits: Path, tmp_path: Path) -> None:
    save_weights(build_model("small/resnet10-w4", 7, 32), tmp_path / "seven.safetensors")
    with pytest.raises(UserError, match="another number of classes"):
        squeeze(teacher_spec(source="path", path=str(tmp_path / "seven.safetensors")), digits, tmp_path)
    with pytest.raises(UserError, match=r"missing.safetensors do not exist"):
        squeeze(teacher_spec(source="path", path=str(tmp_path / "missing.safetensors")), digits, tmp_path)


def test_the_floor_and_the_class_order_are_guarded(teacher: Path) -> None:
    load_teacher(teacher, CLASSES, 10.0, CPU)
    with pytest.raises(UserError, match=r"reaches \d+\.\d\d % top-1, the dataset's floor is 99.9 %"):
        load_teacher(teacher, CLASSES, 99.9, CPU)
    with pytest.raises(UserError, match="class order"):
        load_teacher(teacher, CLASSES[::-1], 0.0, CPU)


def test_a_loss_that_is_not_a_number_stops_with_advice(digits: Path, tmp_path: Path) -> None:
    spec = teacher_spec(recipe=Recipe(epochs=2, batch=64, lr=1e30, crop="resized"))
    with pytest.raises(UserError, match="lower recipe.lr"):
        squeeze(spec, digits, tmp_path)


# warm-up over 5 epochs from 0.01, then a cosine over 45: values by hand
def test_schedule() -> None:
    assert [schedule(e, 50, 5) for e in (0, 1, 5)] == pytest.approx([0.01, 0.208, 1.0])
    assert schedule(20, 50, 5) == pytest.approx(0.75)  # a third of the way: (1 + cos 60) / 2
    assert schedule(0, 10, 0) == 1.0
