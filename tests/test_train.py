"""Evaluation: schedule, targets, pool order and losses by hand; resume to the byte."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import run_spec
from hald.errors import UserError
from hald.files import read_json
from hald.jobs import Interrupted
from hald.labels.codec import keep_top
from hald.labels.store import LabelStore
from hald.specs.base import Identity
from hald.specs.run import Stage
from hald.train import run as module
from hald.train.hard import HardBatches
from hald.train.losses import HardLoss, SoftLoss, smooth_targets
from hald.train.pool import SoftPool, pool_ids
from hald.train.run import Places, evaluate, learning_rate, make_optimizer, stage_at
from hald.views import render
from killing import deadly, finish, start

CPU = torch.device("cpu")


IDENTITY = Identity("k" * 10, "c" * 64)


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


def test_soft_loss_of_a_pruned_label_is_finite_and_over_the_kept_classes(rng: np.random.Generator) -> None:
    student, teacher = (torch.from_numpy(rng.normal(0, 3, (5, 7))).requires_grad_() for _ in range(2))
    loss = SoftLoss(20.0, False)(student, keep_top(teacher.detach(), 3))
    loss.backward()
    kept = teacher.detach().topk(3, dim=1)
    p = torch.softmax(kept.values / 20, dim=1)
    log_q = torch.log_softmax(student.detach() / 20, dim=1).gather(1, kept.indices)
    assert float(loss.detach()) == pytest.approx(float((p * (p.log() - log_q)).sum(dim=1).mean()), rel=1e-9)
    assert torch.isfinite(student.grad).all()


@pytest.mark.parametrize("changes", [{"sampling": "replacement", "pool": 4}, {"top_k": 3}])
def test_pruning_baselines_read_the_same_store(
    changes: dict[str, object], digits: Path, store: Path, tmp_path: Path
) -> None:
    """LPLD: the first batches, drawn with replacement. LPQLD: the largest logits only."""
    target = places(digits, store, tmp_path)
    evaluate(run_spec(**changes), [0], target, CPU, IDENTITY)
    assert np.isfinite(read_json(target.records / "seed-0.json")["curve"][-1]["loss"])


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
        q, scale = (array[view, rows] for array in opened.read(["q", "scale"], 2).values())
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
        part = slice(number * 8, number * 8 + len(rows))
        boxes, flips = (torch.from_numpy(array[part]) for array in (view.box, view.flip))
        plain = render(images[torch.from_numpy(rows)], boxes, flips, 32)
        mixed = plain.clone()
        mixed[:, :, top:bottom, left:right] = plain.flip(0)[:, :, top:bottom, left:right]
        assert torch.allclose(batch.x, (mixed - 0.3) / 0.3, atol=1e-6)


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
        evaluate(run_spec(handover=handover), [0], target, CPU, IDENTITY)
        records[handover] = read_json(target.records / "seed-0.json")["curve"][-1]["loss"]
    assert records["carry"] != records["reset"]


def test_the_record(digits: Path, store: Path, tmp_path: Path) -> None:
    target = places(digits, store, tmp_path)
    evaluate(run_spec(), [0, 1], target, CPU, IDENTITY)
    record = read_json(target.records / "seed-1.json")
    assert record["seed"] == 1
    assert record["curve"][-1]["epoch"] == 6
    assert record["curve"][-1]["stage"] == "soft"
    assert record["top1"] == record["curve"][-1]["top1"]
    assert record["slc_effective"] == 4
    files = [entry for view in range(2) for entry in read_json(store / f"views/{view:05d}.json")["files"].values()]
    assert record["label_bytes"] == sum(entry["bytes"] for entry in files)
    assert record["curve"] != read_json(target.records / "seed-0.json")["curve"]
    assert (record["key"], record["code"]) == ("k" * 10, "c" * 64)
    assert not target.partial.exists()
    assert read_json(target.records / "seed-0.timing.json")["work"] == 6 * 20


def training_job(target: Places, arch: str, phase: str, number: int) -> None:
    """A run of 24 epochs that dies in a chosen place."""
    torch.set_num_threads(1)
    module.CHECKPOINT_EPOCHS = 3
    if phase == "checkpoint":  # while one is being written
        torch.save = deadly(torch.save, number, after=True)
    elif phase == "epoch":
        module._epoch = deadly(module._epoch, number)
    elif phase == "record":
        module.write_json = deadly(module.write_json, number)
    spec = run_spec(arch=arch, stages=(Stage("soft", 8), Stage("hard", 8), Stage("soft", 8)))
    module.evaluate(spec, [0], target, CPU, IDENTITY)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["small/resnet10-w4", "torchvision/mobilenet_v2"])  # the second has dropout
def test_killed_at_any_moment_the_record_is_the_same(arch: str, digits: Path, store: Path, tmp_path: Path) -> None:
    whole, cut = (places(digits, store, tmp_path / name) for name in ("whole", "cut"))
    assert finish(start(training_job, whole, arch, "", 0)) == 0
    for phase, number in (("epoch", 2), ("checkpoint", 1), ("epoch", 5), ("checkpoint", 2), ("record", 1)):
        assert finish(start(training_job, cut, arch, phase, number)) == -signal.SIGKILL
        assert not (cut.records / "seed-0.json").exists()
    assert finish(start(training_job, cut, arch, "", 0)) == 0
    assert (whole.records / "seed-0.json").read_bytes() == (cut.records / "seed-0.json").read_bytes()


def test_a_signal_in_the_last_epoch_loses_nothing(
    digits: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = places(digits, store, tmp_path)
    epoch = module._epoch

    def signalled(*arguments: object) -> object:
        if arguments[-1] == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return epoch(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_epoch", signalled)
    with pytest.raises(Interrupted):
        evaluate(run_spec(), [0, 1], target, CPU, IDENTITY)
    assert (target.records / "seed-0.json").exists()


def test_images_and_labels_that_do_not_belong_are_refused(digits: Path, store: Path, tmp_path: Path) -> None:
    for changes, message in (({"ipc": 3}, "expects IPC 3 x 10 classes"), ({"batch": 4}, "batches of 8")):
        with pytest.raises(UserError, match=message):
            evaluate(run_spec(**changes), [0], places(digits, store, tmp_path), CPU, IDENTITY)
    with pytest.raises(UserError, match="view 2 of label store .* is not complete"):
        evaluate(run_spec(pool=7), [0], places(digits, store, tmp_path), CPU, IDENTITY)
    assert not (tmp_path / "records").exists()


def test_a_loss_that_is_not_a_number_stops(digits: Path, store: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"epoch 0 \(soft stage\); lower lr"):
        evaluate(run_spec(lr=float("inf")), [0], places(digits, store, tmp_path), CPU, IDENTITY)


def test_module_has_no_teacher() -> None:
    """Training never loads a teacher."""
    from hald.provenance import closure, read_sources

    assert "hald.teacher" not in closure((module.__name__,), read_sources())
