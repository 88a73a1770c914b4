"""Evaluation: schedule, targets, pool order and losses by hand; resume to the byte."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import run_spec
from hald.errors import UserError
from hald.files import read_json
from hald.labels.store import LabelStore
from hald.specs.run import Stage
from hald.train import run as module
from hald.train.hard import HardBatches
from hald.train.losses import HardLoss, SoftLoss, smooth_targets
from hald.train.pool import SoftPool, pool_ids
from hald.train.run import Places, evaluate, learning_rate, make_optimizer, stage_at

CPU = torch.device("cpu")


def places(digits: Path, store: Path, folder: Path) -> Places:
    return Places(digits, store, folder / "records", folder / "partial")


# eta 2 at epoch 150 of 300 -> 0.8536 lr0; eta 1: 0.5; last epoch 0.5026 and 0.00003
def test_learning_rate_by_hand() -> None:
    stages = (Stage("soft", 112), Stage("hard", 75), Stage("soft", 113))
    two, one = (run_spec(stages=stages, lr=1.0, eta=eta) for eta in (2.0, 1.0))
    assert [learning_rate(two, e) for e in (0, 75, 150, 225, 299)] == pytest.approx(
        [1, 0.962, 0.8536, 0.691, 0.5026], abs=5e-4
    )
    assert [learning_rate(one, e) for e in (75, 150, 225, 299)] == pytest.approx([0.854, 0.5, 0.146, 0.0], abs=5e-4)


def test_stage_boundaries() -> None:
    spec = run_spec(stages=(Stage("soft", 112), Stage("hard", 75), Stage("soft", 113)))
    assert [stage_at(spec, e) for e in (0, 111, 112, 186, 187, 299)] == [
        (0, 0),
        (0, 111),
        (1, 0),
        (1, 74),
        (2, 0),
        (2, 112),
    ]


def test_smoothed_targets_by_hand() -> None:
    target = smooth_targets(torch.tensor([3]), 10, 0.8)[0]
    assert target[3] == pytest.approx(0.28)
    assert target[0] == pytest.approx(0.08)


def test_soft_loss_against_numpy(rng: np.random.Generator) -> None:
    student, teacher = rng.normal(0, 3, (2, 5, 7))

    def softmax(z: np.ndarray) -> np.ndarray:
        e = np.exp(z - z.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    p, q = softmax(teacher / 20), softmax(student / 20)
    expected = (p * (np.log(p) - np.log(q))).sum(axis=1).mean()
    logits, target = torch.from_numpy(student), torch.from_numpy(teacher)
    assert float(SoftLoss(20.0, False)(logits, target)) == pytest.approx(expected, rel=1e-9)
    assert float(SoftLoss(20.0, True)(logits, target)) == pytest.approx(400 * expected, rel=1e-9)
    assert float(SoftLoss(20.0, False)(logits, target + 5.0)) == pytest.approx(
        expected, rel=1e-9
    )  # a constant is no matter


def test_hard_loss_against_numpy(rng: np.random.Generator) -> None:
    logits, target = rng.normal(size=(4, 6)), rng.dirichlet(np.ones(6), size=4)
    log_q = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    expected = -(target * log_q).sum(axis=1).mean()
    assert float(HardLoss()(torch.from_numpy(logits), torch.from_numpy(target))) == pytest.approx(expected)


def test_pool_uses_every_batch_once_per_pass() -> None:
    epochs = [pool_ids(12, 4, 5, 0, e, "permutation") for e in range(6)]
    first, second = (np.concatenate(epochs[i : i + 3]) for i in (0, 3))
    assert sorted(first) == sorted(second) == list(range(12))
    assert not np.array_equal(first, second)
    assert not np.array_equal(epochs[0], pool_ids(12, 4, 5, 1, 0, "permutation"))  # a new stage starts a new order
    assert not np.array_equal(epochs[0], pool_ids(12, 4, 6, 0, 0, "permutation"))


def test_pool_of_a_fractional_slc_goes_round() -> None:
    ids = np.concatenate([pool_ids(5, 4, 0, 0, e, "permutation") for e in range(5)])
    assert all(sorted(ids[i : i + 5]) == [0, 1, 2, 3, 4] for i in range(0, 20, 5))
    small = pool_ids(3, 7, 0, 0, 0, "permutation")  # fewer batches than an epoch has
    assert sorted(small[:3]) == sorted(small[3:6]) == [0, 1, 2]


def test_pool_with_replacement_repeats() -> None:
    ids = pool_ids(8, 1000, 0, 0, 0, "replacement")
    assert set(ids) == set(range(8))
    assert np.bincount(ids).std() > 0


def test_the_student_sees_exactly_what_was_labelled(store: Path) -> None:
    """Pixels of a pool batch equal those of the teacher's replay bit for bit, with the labels that belong to them."""
    from hald.views import normalize, render_batches

    opened = LabelStore(store)
    images = torch.from_numpy(opened.images())
    spec = run_spec()
    pool = SoftPool(opened, spec, images)
    batches = list(pool.epoch(seed=0, stage=0, epoch=0))
    ids = pool_ids(6, 3, 0, 0, 0, "permutation")
    for batch, number in zip(batches, ids, strict=True):
        view, index = divmod(int(number), 3)
        rows = np.arange(index * 8, min(index * 8 + 8, 20))
        drawn = opened.drawn(view)
        expected = normalize(render_batches(images, drawn, rows, rows // 8, 32), spec.mean, spec.std)
        assert torch.equal(batch.x, expected)
        q, scale = (opened.read(name, 2)[view, rows] for name in ("q", "scale"))
        assert np.array_equal(batch.target.numpy(), q.astype(np.float32) * scale[:, None])


def test_hard_batches_mix_with_the_reversed_batch() -> None:
    images = torch.randint(0, 256, (21, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(21) % 10
    hard = HardBatches(run_spec(smoothing=0.0), images, labels)
    view = hard.draw(seed=3, epoch=5)
    batches = list(hard.epoch(seed=3, epoch=5))
    assert [len(batch.x) for batch in batches] == [8, 8, 4]  # the odd fifth of the last batch is dropped
    for number, batch in enumerate(batches):
        rows = view.image[number * 8 : number * 8 + len(batch.x)]
        top, left, bottom, right = view.cut[number]
        share = 1 - (bottom - top) * (right - left) / 32**2  # corrected to the clipped area
        expected = torch.zeros(len(rows), 10)
        for i, image in enumerate(rows):
            expected[i, labels[image]] += share
            expected[i, labels[rows[len(rows) - 1 - i]]] += 1 - share
        assert torch.allclose(batch.target, expected, atol=1e-6)


def test_weight_decay_spares_biases_and_norms() -> None:
    from hald.models.build import build_model

    model = build_model("small/resnet10-w4", 10, 32)
    decayed, rest = make_optimizer(model, run_spec()).param_groups
    assert decayed["weight_decay"] == 0.01
    assert rest["weight_decay"] == 0.0
    assert all(p.ndim > 1 for p in decayed["params"])
    assert all(p.ndim == 1 for p in rest["params"])


def test_a_reset_hand_over_clears_the_optimiser(digits: Path, store: Path, tmp_path: Path) -> None:
    records = {}
    for handover in ("carry", "reset"):
        target = places(digits, store, tmp_path / handover)
        evaluate(run_spec(handover=handover), [0], target, CPU)
        records[handover] = read_json(target.records / "seed-0.json")["curve"][-1]["loss"]
    assert records["carry"] != records["reset"]


def test_the_record(digits: Path, store: Path, tmp_path: Path) -> None:
    target = places(digits, store, tmp_path)
    evaluate(run_spec(), [0, 1], target, CPU)
    record = read_json(target.records / "seed-1.json")
    assert record["seed"] == 1
    assert record["curve"][-1]["epoch"] == 6
    assert record["curve"][-1]["stage"] == "soft"
    assert record["top1"] == record["curve"][-1]["top1"]
    assert record["slc_effective"] == 4
    files = [entry for view in range(2) for entry in read_json(store / f"views/{view:05d}.json")["files"].values()]
    assert record["label_bytes"] == sum(entry["bytes"] for entry in files)
    assert record["top1"] != read_json(target.records / "seed-0.json")["top1"] or record["curve"] != []
    assert read_json(target.records / "seed-0.timing.json")["work"] == 6 * 20


SCRIPT = """
import sys, torch
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import run_spec
from hald.specs.run import Stage
from hald.train import run
torch.set_num_threads(1)
run.CHECKPOINT_EPOCHS = 3
spec = run_spec(stages=(Stage("soft", 8), Stage("hard", 8), Stage("soft", 8)))
places = run.Places(*map(Path, sys.argv[2:6]))
run.evaluate(spec, [0], places, torch.device("cpu"))
"""


@pytest.mark.slow
def test_killed_at_any_moment_the_record_is_the_same(digits: Path, store: Path, tmp_path: Path) -> None:
    def command(name: str) -> list[str]:
        target = places(digits, store, tmp_path / name)
        arguments = [Path(__file__).parent, target.dataset, target.store, target.records, target.partial]
        return [sys.executable, "-c", SCRIPT, *map(str, arguments)]

    subprocess.run(command("whole"), check=True)
    checkpoint = tmp_path / "cut/partial/seed-0/checkpoint.pt"
    for _ in range(2):
        process = subprocess.Popen(command("cut"))
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        while process.poll() is None and (not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before):
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "cut/records/seed-0.json").exists()
    subprocess.run(command("cut"), check=True)
    whole, cut = ((tmp_path / name / "records/seed-0.json").read_bytes() for name in ("whole", "cut"))
    assert whole == cut


def test_images_and_labels_that_do_not_belong_are_refused(digits: Path, store: Path, tmp_path: Path) -> None:
    for changes, message in (({"ipc": 3}, "expects IPC 3 x 10 classes"), ({"batch": 4}, "batches of 8")):
        with pytest.raises(UserError, match=message):
            evaluate(run_spec(**changes), [0], places(digits, store, tmp_path), CPU)
    with pytest.raises(UserError, match="view 2 of label store .* is not complete"):
        evaluate(run_spec(pool=7), [0], places(digits, store, tmp_path), CPU)
    assert not (tmp_path / "records").exists()


def test_a_loss_that_is_not_a_number_stops(digits: Path, store: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"epoch 0 \(soft stage\); lower lr"):
        evaluate(run_spec(lr=float("inf")), [0], places(digits, store, tmp_path), CPU)


def test_module_has_no_teacher() -> None:
    """Training never loads a teacher."""
    from hald.provenance import closure, read_sources

    assert "hald.teacher" not in closure(module.__name__, read_sources())
