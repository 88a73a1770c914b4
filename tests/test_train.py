"""Evaluation: schedule, targets, pool order and losses by hand; resume to the byte."""

import math
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import zarr
from hypothesis import given
from hypothesis import strategies as st
from torchvision.transforms.v2.functional import resized_crop

from conftest import Training, labels_spec, layer_seeds, make_labels, run_spec
from hald.errors import UserError
from hald.evaluation import train as module
from hald.evaluation.batches import Batch
from hald.evaluation.cross_entropy import CrossEntropy, smooth
from hald.evaluation.hard_batches import HardBatches
from hald.evaluation.hard_temperature import temperature_of
from hald.evaluation.loss import learned, soft_loss
from hald.evaluation.losses.gift import Gift
from hald.evaluation.losses.joint import Joint
from hald.evaluation.losses.kl import KL
from hald.evaluation.losses.lpqld import Lpqld
from hald.evaluation.phases import learning_rate, phase_at
from hald.evaluation.rendering import rendered
from hald.evaluation.schedule import schedule_of
from hald.evaluation.schedules.adaptive import HeldOut, goes_on, watch
from hald.evaluation.soft_pool import SoftPool, keep_top, pool_ids
from hald.evaluation.spec import AdaptiveSpec, LossSpec, Phase, RunSpec
from hald.evaluation.student import Student, make_optimizer, make_student
from hald.files import read_json
from hald.jobs.signals import Interrupted
from hald.labels.store import LabelStore
from hald.numerics.views import View
from killing import deadly, finish, start

CPU = torch.device("cpu")
X = torch.empty(0)


# eta 2 at epoch 150 of 300 -> 0.8536 lr0; eta 1: 0.5; last epoch 0.5026 and 0.00003
def test_learning_rate_by_hand() -> None:
    stages = (Phase("soft", 112), Phase("hard", 75), Phase("soft", 113))
    two, one = (run_spec(stages=stages, lr=1.0, eta=eta) for eta in (2.0, 1.0))
    assert [learning_rate(two, e) for e in (0, 75, 150, 225, 299)] == pytest.approx(
        [1, 0.962, 0.8536, 0.691, 0.5026], abs=5e-4
    )
    assert [learning_rate(one, e) for e in (75, 150, 225, 299)] == pytest.approx([0.854, 0.5, 0.146, 0.0], abs=5e-4)


def test_stage_boundaries() -> None:
    spec = run_spec(stages=(Phase("soft", 112), Phase("hard", 75), Phase("soft", 113)))
    starts = schedule_of(spec).starts(spec)
    assert starts == [0, 112, 187]
    assert [phase_at(starts, e) for e in (0, 111, 112, 186, 187, 299)] == [
        (0, 0),
        (0, 111),
        (1, 0),
        (1, 74),
        (2, 0),
        (2, 112),
    ]


def test_smoothed_targets_by_hand() -> None:
    target = smooth(torch.eye(10)[3:4], 0.8)[0]
    assert target[3] == pytest.approx(0.28)
    assert target[0] == pytest.approx(0.08)


def test_soft_loss_against_numpy(rng: np.random.Generator) -> None:
    student, teacher = rng.normal(0, 3, (2, 5, 7))

    def softmax(z: np.ndarray) -> np.ndarray:
        e = np.exp(z - z.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    p, q = softmax(teacher / 20), softmax(student / 20)
    expected = (p * (np.log(p) - np.log(q))).sum(axis=1).mean()
    logits, target = torch.from_numpy(student), Batch(X, torch.from_numpy(teacher))
    shifted = Batch(X, target.target + 5.0)
    assert float(KL(20.0, False)(logits, target)) == pytest.approx(expected, rel=1e-9)
    assert float(KL(20.0, True)(logits, target)) == pytest.approx(400 * expected, rel=1e-9)
    assert float(KL(20.0, False)(logits, shifted)) == pytest.approx(expected, rel=1e-9)  # a constant is no matter


def test_soft_loss_of_a_pruned_label_is_finite_and_over_the_kept_classes(rng: np.random.Generator) -> None:
    student, teacher = (torch.from_numpy(rng.normal(0, 3, (5, 7))).requires_grad_() for _ in range(2))
    loss = KL(20.0, False)(student, Batch(X, keep_top(teacher.detach(), 3)))
    loss.backward()
    kept = teacher.detach().topk(3, dim=1)
    p = torch.softmax(kept.values / 20, dim=1)
    log_q = torch.log_softmax(student.detach() / 20, dim=1).gather(1, kept.indices)
    assert float(loss.detach()) == pytest.approx(float((p * (p.log() - log_q)).sum(dim=1).mean()), rel=1e-9)
    assert torch.isfinite(student.grad).all()


def test_hard_loss_against_numpy(rng: np.random.Generator) -> None:
    logits, target = rng.normal(size=(4, 6)), rng.dirichlet(np.ones(6), size=4)
    log_q = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    expected = -(target * log_q).sum(axis=1).mean()
    batch = Batch(X, torch.from_numpy(target))
    assert float(CrossEntropy()(torch.from_numpy(logits), batch)) == pytest.approx(expected)
    # at a temperature: that of logits which are so much smaller, times its square
    assert float(CrossEntropy(4.0)(torch.from_numpy(4 * logits), batch)) == pytest.approx(16 * expected)


@given(st.integers(0, 2**32 - 1), st.floats(0.25, 0.8))
def test_the_temperature_of_a_confidence(seed: int, confidence: float) -> None:
    logits = np.random.default_rng(seed).normal(0, 9, (50, 6))
    found = temperature_of(torch.from_numpy(logits), confidence)
    p = np.exp(logits / found)
    assert (p / p.sum(axis=1, keepdims=True)).max(axis=1).mean() == pytest.approx(confidence, abs=1e-3)


@pytest.mark.parametrize("confidence", [1 / 6, 0.9999])
def test_a_confidence_that_no_temperature_gives_is_refused(confidence: float, rng: np.random.Generator) -> None:
    """Smoothing 1 (a sixth for each of six classes), and hardly any with an unsure teacher."""
    with pytest.raises(UserError, match=rf"class labels' {confidence:.3f} does not lie between"):
        temperature_of(torch.from_numpy(rng.normal(0, 2, (50, 6))), confidence)


def test_held_out_images_have_no_say_in_the_temperature(store: Path) -> None:
    images = torch.from_numpy(LabelStore(store).images())
    labels = torch.arange(10).repeat_interleave(2)
    held = np.arange(20) % 2 == 1
    everything, seen = (SoftPool(LabelStore(store), run_spec(), images, labels, which) for which in (None, held))
    assert seen.usable is not None
    assert torch.equal(seen.logits(), everything.logits()[torch.from_numpy(seen.usable)])
    assert len(seen.logits()) < len(everything.logits())


def test_a_hard_stage_at_the_labels_own_temperature(digits: Path, store: Path, tmp_path: Path) -> None:
    """Ten classes, smoothing 0.8: the class label says 0.28, and so do the teacher's labels at that temperature."""
    records = {}
    for given_one in (1.0, None):
        target = Training(digits, store, tmp_path / str(given_one))
        target.train(run_spec(hard_temperature=given_one), [0])
        records[given_one] = read_json(target.records / "seed-0.json")
    found = records[None]["hard_temperature"]
    labels = LabelStore(store)
    q, scale = labels.read(["q", "scale"], 2).values()
    z = (q.astype(np.float64) * scale[..., None]).reshape(-1, 10)
    p = np.exp(z / found - (z / found).max(axis=1, keepdims=True))
    assert (p.max(axis=1) / p.sum(axis=1)).mean() == pytest.approx(0.28, abs=1e-3)
    assert records[1.0]["hard_temperature"] == 1.0
    assert records[1.0]["curve"] != records[None]["curve"]


def mixed_batch(rng: np.random.Generator, classes: int = 7) -> tuple[np.ndarray, np.ndarray, Batch]:
    """Student and teacher logits of five pictures, with classes and shares."""
    student, teacher = rng.normal(0, 3, (2, 5, classes))
    own, partner = rng.integers(classes, size=(2, 5))
    share = rng.uniform(size=5)
    parts = (torch.from_numpy(part) for part in (teacher, own, partner, share))
    return student, teacher, Batch(X, *parts)


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def test_joint_objective_against_numpy(rng: np.random.Generator) -> None:
    student, _, batch = mixed_batch(rng)
    hard = np.zeros((5, 7))
    for i, (own, partner, share) in enumerate(zip(batch.own, batch.partner, batch.share, strict=True)):
        hard[i, own] += float(share)
        hard[i, partner] += 1 - float(share)
    hard = 0.2 * hard + 0.8 / 7
    logits = torch.from_numpy(student)
    expected = float(KL(20.0, True)(logits, batch)) - 0.1 * (hard * np.log(softmax(student))).sum(axis=1).mean()
    assert float(Joint(20.0, True, 0.1, 0.8)(logits, batch)) == pytest.approx(expected)


@pytest.mark.parametrize("mixed", [False, True])
def test_gift_against_numpy(mixed: bool, rng: np.random.Generator) -> None:
    student, teacher, batch = mixed_batch(rng)
    own, partner, share = (np.asarray(part) for part in (batch.own, batch.partner, batch.share))
    hot = np.eye(7)[own] if not mixed else share[:, None] * np.eye(7)[own] + (1 - share[:, None]) * np.eye(7)[partner]
    label = hot * (0.9 - 0.1 / 6) + 0.1 / 6  # 0.9 on the class, 0.1 over the six others
    assert label.sum(axis=1) == pytest.approx(np.ones(5))
    teacher = teacher - teacher.mean(axis=1, keepdims=True)

    def unit(z: np.ndarray) -> np.ndarray:
        return z / np.linalg.norm(z, axis=1, keepdims=True)

    target = unit(teacher) + 0.1 * unit(label)
    expected = 1 - (unit(student) * unit(target)).sum(axis=1).mean()
    assert float(Gift(0.1, mixed)(torch.from_numpy(student), batch)) == pytest.approx(expected)


# T(e) = max(2, 20 x 0.7^floor(e / 30)), e = 1 .. 300
def test_lpqld_teacher_temperature_by_hand() -> None:
    spec = LossSpec("lpqld", {"start": 20.0, "factor": 0.7, "every": 30, "floor": 2.0})
    at = {e: soft_loss(spec, e - 1, 1.0).teacher for e in (1, 29, 30, 60, 90, 120, 150, 180, 209, 210, 300)}
    expected = [20, 20, 14, 9.8, 6.86, 4.802, 3.3614, 2.35298, 2.35298, 2, 2]
    assert list(at.values()) == pytest.approx(expected)


def test_lpqld_calibrates_on_the_grid(rng: np.random.Generator) -> None:
    student, teacher, batch = mixed_batch(rng)
    p = softmax(teacher / 14)

    def log_softmax(z: np.ndarray) -> np.ndarray:
        return z - z.max(axis=1, keepdims=True) - np.log(np.exp(z - z.max(axis=1, keepdims=True)).sum(1, keepdims=True))

    grid = np.linspace(0.01, 1, 100)
    losses = [(p * (np.log(p) - log_softmax(student / t))).sum(axis=1).mean() for t in grid]
    loss = Lpqld(14.0, 1.0)
    assert float(loss(torch.from_numpy(student), batch)) == pytest.approx(losses[-1])
    best = loss.after_epoch(torch.from_numpy(student), batch)
    assert best == pytest.approx(grid[int(np.argmin(losses))], abs=1e-6)
    assert learned(loss, torch.from_numpy(student), batch, 1.0) == best
    assert learned(KL(14.0, squared=False), torch.from_numpy(student), batch, 0.5) == 0.5
    sharp = Batch(X, torch.from_numpy(student * 14 / 0.25))  # the teacher at T = 14 is the student at 0.25
    assert loss.after_epoch(torch.from_numpy(student), sharp) == pytest.approx(0.25, abs=1e-6)


def test_pool_knows_the_classes_of_its_pictures(store: Path) -> None:
    """Own class, partner's class and share, read off the stored geometry row by row."""
    opened, spec = LabelStore(store), run_spec()
    labels = torch.arange(10).repeat_interleave(2)
    pool = SoftPool(opened, spec, torch.from_numpy(opened.images()), labels)
    for batch, number in zip(pool.epoch(0, 0, 0), pool_ids(6, 3, 0, 0, 0, "permutation"), strict=True):
        view, index = divmod(int(number), 3)
        drawn = opened.drawn(view)
        top, left, bottom, right = drawn.cut[index]
        for i, row in enumerate(range(index * 8, min(index * 8 + 8, 20))):
            other = drawn.image[index * 8 + drawn.partner[row]]
            assert int(batch.own[i]) == drawn.image[row] // 2
            assert int(batch.partner[i]) == other // 2
            assert float(batch.share[i]) == pytest.approx(1 - (bottom - top) * (right - left) / 1024)


def test_held_out_images_are_never_seen(store: Path) -> None:
    opened, spec = LabelStore(store), run_spec()
    held = np.arange(20) % 2 == 1
    images = torch.from_numpy(opened.images())
    labels = torch.arange(20)  # every image a class of its own, to recognise it
    pool = SoftPool(opened, spec, images, labels, held)
    seen = [batch for epoch in range(4) for batch in pool.epoch(0, 0, epoch)]
    assert seen
    assert all((batch.own % 2 == 0).all() and (batch.partner % 2 == 0).all() for batch in seen)
    assert all(len(batch.x) == len(batch.target) == len(batch.share) > 1 for batch in seen)


ADAPTIVE = AdaptiveSpec(window=3, accuracy=0.5, entropy=0.01, shortest=4, held_out=1)


def test_the_adaptive_schedule_leaves_the_first_stage_at_an_accuracy_plateau() -> None:
    rising = [(float(i), 0.5, 1.0) for i in range(20)]  # one point per epoch
    assert not any(goes_on(ADAPTIVE, 100, [0], rising[:n]) for n in range(1, 20))
    flat = [*rising[:10], *[(9.0 + 0.4 * i, 0.5, 1.0) for i in range(1, 9)]]  # then 0.4 points per epoch
    first = next(n for n in range(1, 19) if goes_on(ADAPTIVE, 100, [0], flat[:n]))
    # increments over three epochs: (1 + 0.4 + 0.4) / 3 = 0.6, then 0.4: after thirteen epochs
    assert first == 13
    assert not goes_on(ADAPTIVE, 100, [0], [(0.0, 0.5, 1.0)] * 3)  # shortest stage
    assert goes_on(ADAPTIVE, 100, [0], [(0.0, 0.5, 1.0)] * 4)


def test_the_adaptive_schedule_may_leave_the_first_stage_when_held_out_labels_teach_no_more() -> None:
    rule = replace(ADAPTIVE, divergence=0.1)
    falling = [(0.0, 0.5, 0.9**i) for i in range(10)]  # flat accuracy; the loss falls by 27 % over three epochs
    assert not any(goes_on(rule, 100, [0], falling[:n]) for n in range(1, 11))
    slower = [*falling, *[(0.0, 0.5, 0.9**9 * 0.98**i) for i in range(1, 9)]]
    # over three epochs it falls to 0.9 * 0.9 * 0.98 = 0.79, 0.9 * 0.98^2 = 0.86, 0.98^3 = 0.94: the third is enough
    assert next(n for n in range(1, 19) if goes_on(rule, 100, [0], slower[:n])) == 13


def test_the_adaptive_schedule_leaves_the_second_stage_at_an_entropy_plateau() -> None:
    start = [(0.0, 0.9, 1.0)] * 10
    moving = [*start, *[(0.0, 0.9 - 0.05 * i, 1.0) for i in range(8)]]
    assert not any(goes_on(ADAPTIVE, 100, [0, 10], moving[:n]) for n in range(11, 19))
    settled = [*moving, *[(0.0, 0.55 - 0.002 * i, 1.0) for i in range(1, 9)]]
    # over three epochs the entropy moves by 0.102, 0.054, 0.006: below 0.01 at the third settled epoch
    assert [goes_on(ADAPTIVE, 100, [0, 10], settled[:n]) for n in (19, 20, 21)] == [False, False, True]


def test_the_adaptive_schedule_keeps_time_for_later_stages() -> None:
    rising = [(float(i), i / 30, 1.0) for i in range(20)]
    assert [goes_on(ADAPTIVE, 20, [0], rising[:n]) for n in (11, 12)] == [False, True]
    assert [goes_on(ADAPTIVE, 20, [0, 12], rising[:n]) for n in (15, 16)] == [False, True]
    assert not goes_on(ADAPTIVE, 20, [0, 12, 16], rising)


def test_watched_entropy_is_a_share_of_the_largest() -> None:
    class Fixed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    uniform, sharp = torch.zeros(4, 10), 100 * torch.eye(10)[:4]
    crops = Batch(torch.zeros(6, 10), torch.tensor([0.0] + [-torch.inf] * 9).expand(6, 10))  # a teacher that is sure
    first, loss = HeldOut(uniform, torch.arange(4), crops), KL(1.0, squared=False)
    assert watch(Fixed(), first, loss) == pytest.approx((25.0, 1.0, math.log(10)))  # ties: the first class
    second = HeldOut(sharp, torch.tensor([0, 1, 2, 9]), crops)
    assert watch(Fixed(), second, loss) == pytest.approx((75.0, 0.0, math.log(10)), abs=1e-6)


def test_held_out_crops_are_those_of_the_held_out_images(store: Path) -> None:
    opened = LabelStore(store)
    spec = run_spec(pool=2 * opened.header.batches)
    images = torch.from_numpy(opened.images())
    pool = SoftPool(opened, spec, images, torch.arange(20))
    held = np.arange(20) % 5 == 3
    crops = pool.crops_of(held)
    assert sorted(crops.own.tolist()) == sorted([3, 8, 13, 18] * 2)  # each once in both views
    whole = [batch for number in range(spec.pool) for batch in stored(pool, number)]
    together = {name: torch.cat([getattr(batch, name) for batch in whole]) for name in ("x", "target", "own", "share")}
    chosen = torch.isin(together["own"], torch.tensor([3, 8, 13, 18]))
    for name, values in together.items():
        assert torch.equal(getattr(crops, name), values[chosen])


def stored(pool: SoftPool, number: int) -> Iterator[Batch]:
    """One stored batch, as a training gets it."""
    rows = pool.rows(number)
    for x, part in rendered(pool.images, pool.view, [(number, rows)], pool.spec):
        yield from pool._batch(x, slice(part.start, part.stop))


def test_without_a_divergence_no_crop_of_held_out_images_is_asked_for() -> None:
    class Fixed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    held = HeldOut(torch.zeros(4, 10), torch.arange(4), None)
    assert watch(Fixed(), held, KL(1.0, squared=False)) == pytest.approx((25.0, 1.0, 0.0))


def test_a_pool_without_a_crop_of_held_out_images_is_refused(store: Path) -> None:
    opened = LabelStore(store)
    pool = SoftPool(opened, run_spec(pool=1), torch.from_numpy(opened.images()), torch.arange(20))
    elsewhere = ~np.isin(np.arange(20), pool.view.image[:8])
    with pytest.raises(UserError, match=r"no stored crop .* raise the SLC or adaptive.held_out"):
        pool.crops_of(elsewhere)


def test_an_adaptive_training_notes_its_stages(digits: Path, real_set: Path, teacher: Path, tmp_path: Path) -> None:
    unmixed = make_labels(labels_spec(mix="none"), real_set, [teacher], tmp_path / "labels.zarr", range(2))
    target = Training(digits, unmixed, tmp_path)
    stages = (Phase("soft", None), Phase("hard", None), Phase("soft", None))
    adaptive = AdaptiveSpec(window=1, accuracy=1000.0, entropy=1e-9, shortest=2, held_out=1)
    target.train(run_spec(stages=stages, epochs=9, adaptive=adaptive), [0])
    record = read_json(target.records / "seed-0.json")
    assert record["stage_starts"] == [0, 2, 7]  # leaves soft as soon as it may, hard only when it must


def test_distinct_batches_in_every_epoch() -> None:
    epochs = [pool_ids(12, 8, 0, 0, e, "epoch") for e in range(3)]
    assert all(len(set(ids)) == 8 for ids in epochs)
    assert not np.array_equal(epochs[0], epochs[1])
    assert len(pool_ids(3, 8, 0, 0, 0, "epoch")) == 8


STUDENTS = [
    "small/resnet18",
    "small/resnet50",
    "small/mobilenet_v2",
    "small/densenet121",
    "small/shufflenet_v2_x0_5",
    "small/convnet-w128",
    "torchvision/resnet18",
    "torchvision/efficientnet_b0",
    "torchvision/mobilenet_v2",
    "torchvision/densenet121",
    "torchvision/shufflenet_v2_x0_5",
    "torchvision/vgg11",
    "torchvision/vgg16",
    "timm/vit_tiny_patch16_224",
]
LOSSES = [
    LossSpec("kl", {"temperature": 20.0, "squared": False}),
    LossSpec("kl", {"temperature": 20.0, "squared": True}),
    LossSpec("joint", {"temperature": 20.0, "squared": False, "weight": 0.1, "smoothing": 0.8}),
    LossSpec("gift", {"weight": 0.1, "mixed": False}),
    LossSpec("gift", {"weight": 0.1, "mixed": True}),
    LossSpec("lpqld", {"start": 20.0, "factor": 0.7, "every": 30, "floor": 2.0}),
]


def two_steps(spec: RunSpec, store: Path) -> None:
    """Two optimiser steps that change every trainable tensor, with finite losses and a C-way head."""
    opened = LabelStore(store)
    pool = SoftPool(opened, spec, torch.from_numpy(opened.images()), torch.arange(10).repeat_interleave(2))
    student = make_student(spec, 0, CPU)
    before = {name: value.detach().clone() for name, value in student.model.named_parameters()}
    batches = iter(list(pool.epoch(0, 0, 0))[:2])
    losses, logits, _ = student.steps(batches, soft_loss(spec.loss, 0, 1.0))
    assert torch.isfinite(losses).all()
    assert len(losses) == 2
    assert logits.shape[1] == 10
    still = [name for name, value in student.model.named_parameters() if torch.equal(value, before[name])]
    assert not still


@pytest.mark.slow
@pytest.mark.parametrize("arch", STUDENTS)
def test_every_student_learns(arch: str, store: Path) -> None:
    two_steps(run_spec(arch=arch), store)


TRAINED = [(loss, top_k) for top_k in (None, 3) for loss in LOSSES if not (loss.name == "gift" and top_k)]


# GIFT needs all logits; the plan says so
@pytest.mark.parametrize(
    ("top_k", "loss"), [(k, loss) for loss, k in TRAINED], ids=lambda value: getattr(value, "name", str(value))
)
def test_every_loss_trains(loss: LossSpec, top_k: int | None, store: Path) -> None:
    two_steps(run_spec(loss=loss, top_k=top_k), store)


PRECISE = {"bf16": torch.bfloat16, "fp16": torch.float16, "float32": None}


@pytest.mark.parametrize("precision", PRECISE)
def test_mixed_precision_trains(precision: str, store: Path) -> None:
    """The forward pass computes in it, with weights and losses in float32; fp16 has its gradients scaled."""
    student = make_student(run_spec(precision=precision), 0, CPU)
    seen: set[torch.dtype | None] = set()

    def look(*_: object) -> None:
        seen.add(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None)

    student.model.register_forward_pre_hook(look)
    answers: list[torch.dtype] = []
    student.model.fc.register_forward_hook(lambda module, inputs, output: answers.append(output.dtype))
    batch = Batch(torch.rand(8, 3, 32, 32), torch.zeros(8, 10))
    given: list[torch.dtype] = []

    def loss(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        given.append(logits.dtype)
        return KL(4.0, squared=True)(logits, batch)

    losses, logits, _ = student.steps(iter([batch]), loss)
    assert given == [torch.float32]  # a loss is never computed in half precision
    assert seen == {PRECISE[precision]}
    assert answers == [PRECISE[precision] or torch.float32]
    assert {losses.dtype, logits.dtype, *(p.dtype for p in student.model.parameters())} == {torch.float32}
    assert student.scaler.is_enabled() == (precision == "fp16")
    two_steps(run_spec(precision=precision), store)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
def test_a_compiled_student_is_the_same_student(store: Path) -> None:
    opened = LabelStore(store)
    labels = torch.arange(10).repeat_interleave(2)
    losses = {}
    for how in ("off", "on"):
        spec = run_spec(arch="small/convnet-w128", compile=how)
        pool = SoftPool(opened, spec, torch.from_numpy(opened.images()), labels)
        batches = [batch for batch in pool.epoch(0, 0, 0) if len(batch.x) == 8]  # one shape is compiled once
        losses[how] = make_student(spec, 0, CPU).steps(iter(batches), soft_loss(spec.loss, 0, 1.0))[0]
    assert torch.allclose(losses["on"], losses["off"], rtol=1e-3)
    with pytest.raises(UserError, match="too few channels"):
        make_student(run_spec(arch="small/resnet10-w4", compile="on"), 0, CPU)


def test_long_trainings_are_compiled_where_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(torch, "compile", lambda model, mode: asked.append(mode) or model)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/g++")
    wide = run_spec(arch="small/resnet10-w8", compile="auto")
    long = replace(wide, epochs=40_000 * wide.batch // (wide.ipc * wide.classes) + 1)
    make_student(wide, 0, CPU)
    make_student(replace(long, arch="small/resnet10-w4"), 0, CPU)  # would die in the backward pass
    assert not asked
    make_student(long, 0, CPU)
    assert asked == ["default"]
    monkeypatch.setattr(shutil, "which", lambda name: None)
    make_student(long, 0, CPU)
    assert asked == ["default"]


SCHEDULES = {
    "soft": ("soft",),
    "hard": ("hard",),
    "hard-soft": ("hard", "soft"),
    "soft-hard": ("soft", "hard"),
    "hard-soft-hard": ("hard", "soft", "hard"),
    "alternating": ("soft", "hard", "soft", "hard"),
}


@pytest.mark.parametrize("kinds", SCHEDULES.values(), ids=SCHEDULES)
def test_every_schedule_trains(kinds: tuple[str, ...], digits: Path, store: Path, tmp_path: Path) -> None:
    target = Training(digits, store, tmp_path)
    target.train(run_spec(stages=tuple(Phase(kind, 2) for kind in kinds)), [0])
    record = read_json(target.records / "seed-0.json")
    assert record["stage_starts"] == list(range(0, 2 * len(kinds), 2))
    assert record["curve"][-1]["stage"] == kinds[-1]
    assert np.isfinite(record["curve"][-1]["loss"])


def test_lpqld_training_resumes_with_its_temperature(
    digits: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_EPOCHS", 1)
    whole, cut = (Training(digits, store, tmp_path / name) for name in ("whole", "cut"))
    spec = run_spec(stages=(Phase("soft", 4),), loss=LOSSES[-1], top_k=3)
    whole.train(spec, [0])
    with monkeypatch.context() as context:
        epoch = module.train_epoch

        def stopped(*arguments: object) -> None:
            if arguments[-1] == 2:
                raise Interrupted
            epoch(*arguments)  # type: ignore[arg-type]

        context.setattr(module, "train_epoch", stopped)
        with pytest.raises(Interrupted):
            cut.train(spec, [0])
    cut.train(spec, [0])
    assert (whole.records / "seed-0.json").read_bytes() == (cut.records / "seed-0.json").read_bytes()


def test_an_unreadable_checkpoint_starts_anew(digits: Path, store: Path, tmp_path: Path) -> None:
    whole, torn = (Training(digits, store, tmp_path / name) for name in ("whole", "torn"))
    checkpoint = torn.partial / "seed-0/checkpoint.pt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(b"PK\x03\x04 torn")
    for target in (whole, torn):
        target.train(run_spec(), [0])
    assert (whole.records / "seed-0.json").read_bytes() == (torn.records / "seed-0.json").read_bytes()


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
    from hald.numerics.views import normalize, render_batches

    opened = LabelStore(store)
    images = torch.from_numpy(opened.images())
    spec = run_spec()
    pool = SoftPool(opened, spec, images, torch.arange(10).repeat_interleave(2))
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


def hard_view(epoch: int, count: int = 4000, **changes: object) -> View:
    """The draws of a hard epoch over many images of 48 px (a run at 32 px), in batches of 8."""
    images = torch.zeros(count, 1, 48, 48, dtype=torch.uint8)
    return HardBatches(run_spec(**changes), images, torch.zeros(count, dtype=torch.int64)).draw(seed=3, epoch=epoch)


def test_hard_crops_are_random_resized_crops() -> None:
    """torchvision's law: the area uniform in the scale, the aspect uniform in its logarithm, the place anywhere."""
    top, left, height, width = hard_view(0, scale=(0.25, 0.5), ratio=(0.8, 1.25)).box.T
    area, aspect = height * width / 48**2, width / height
    assert 0.23 < area.min() < 0.27 < 0.48 < area.max() < 0.52  # sides are whole pixels
    assert np.quantile(area, [0.25, 0.5, 0.75]) == pytest.approx([0.3125, 0.375, 0.4375], abs=0.01)
    assert np.quantile(np.log(aspect), [0.1, 0.5, 0.9]) == pytest.approx(
        np.array([-0.8, 0, 0.8]) * np.log(1.25), abs=0.02
    )
    for first, length in ((top, height), (left, width)):
        assert first.min() == 0
        assert (first + length).max() == 48
        assert (first / (48 - length)).mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("flip", [0.0, 0.25, 1.0])
def test_hard_crops_are_flipped_as_often_as_told(flip: float) -> None:
    assert hard_view(0, flip=flip).flip.mean() == pytest.approx(flip, abs=0.025)  # 0.007 is one standard deviation


def rectangles_by_hand(count: int, size: int) -> np.ndarray:
    """Areas (in parts of the picture) of CutMix: sides sqrt(1 - lam) with lam uniform, any centre, clipped."""
    rng = np.random.default_rng(0)
    side = np.floor(size * np.sqrt(1 - rng.random(count)))
    centres = rng.integers(0, size, (2, count))
    low, high = (np.clip(centres + sign * (side // 2), 0, size) for sign in (-1, 1))
    return np.prod((high - low) / size, axis=0)


def test_hard_rectangles_follow_cutmix() -> None:
    view = hard_view(0, count=32_000)  # 4,000 rectangles
    top, left, bottom, right = view.cut.T
    area = (bottom - top) * (right - left) / 32**2
    assert view.lam == pytest.approx(1 - area)
    expected = rectangles_by_hand(400_000, 32)
    assert area.mean() == pytest.approx(expected.mean(), abs=0.015)  # one standard deviation is 0.003
    places = [0.1, 0.25, 0.5, 0.75, 0.9, 0.98]
    assert np.quantile(area, places) == pytest.approx(np.quantile(expected, places), abs=0.03)
    for low, high in ((top, bottom), (left, right)):
        assert low.min() >= 0
        assert high.max() <= 32
        assert ((low + high) / 2).mean() == pytest.approx(16, abs=0.5)


def test_hard_draws_are_new_in_every_epoch_and_for_every_seed() -> None:
    images, labels = torch.zeros(21, 3, 32, 32, dtype=torch.uint8), torch.zeros(21, dtype=torch.int64)
    hard = HardBatches(run_spec(flip=0.5), images, labels)
    first, again, later, other = (hard.draw(seed, epoch) for seed, epoch in ((3, 5), (3, 5), (3, 6), (4, 5)))
    for name in ("image", "box", "flip", "cut"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
        assert not np.array_equal(getattr(first, name), getattr(later, name))
        assert not np.array_equal(getattr(first, name), getattr(other, name))


def shown(image: np.ndarray, box: np.ndarray, flip: bool, size: int) -> np.ndarray:
    """A crop of a picture (3, H, W) uint8 as torchvision makes it, 0 .. 1."""
    top, left, height, width = (int(value) for value in box)
    crop = resized_crop(torch.from_numpy(image) / 255, top, left, height, width, [size, size], antialias=True).numpy()
    return crop[:, :, ::-1] if flip else crop


def by_hand(
    images: np.ndarray, index: np.ndarray, box: np.ndarray, flip: np.ndarray, partner: np.ndarray, cut: np.ndarray
) -> np.ndarray:
    """A mixed batch, normalised: every crop with its partner's pixels in the rectangle top, left, bottom, right."""
    size = images.shape[-1]
    crops = np.stack([shown(images[i], b, bool(f), size) for i, b, f in zip(index, box, flip, strict=True)])
    top, left, bottom, right = (int(value) for value in cut)
    mixed = crops.copy()
    mixed[:, :, top:bottom, left:right] = crops[partner.astype(int), :, top:bottom, left:right]
    return (mixed - 0.3) / 0.3


def hard_by_hand(view: View, number: int, images: np.ndarray, labels: np.ndarray, spec: RunSpec) -> Batch:
    """Batch `number` of a hard epoch: the reversed batch is mixed in, an odd last image is dropped."""
    rows = view.image[number * spec.batch : (number + 1) * spec.batch]
    rows = rows[: len(rows) // 2 * 2]
    part = slice(number * spec.batch, number * spec.batch + len(rows))
    x = by_hand(images, rows, view.box[part], view.flip[part], np.arange(len(rows))[::-1], view.cut[number])
    top, left, bottom, right = view.cut[number]
    share = 1 - (bottom - top) * (right - left) / spec.size**2  # of what lies inside the picture
    hot = np.eye(spec.classes)[labels[rows]]
    target = (1 - spec.smoothing) * (share * hot + (1 - share) * hot[::-1]) + spec.smoothing / spec.classes
    return Batch(torch.from_numpy(x).float(), torch.from_numpy(target).float())


def test_hard_batches_mix_with_the_reversed_batch() -> None:
    images = torch.randint(0, 256, (21, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(21) % 10
    spec = run_spec(smoothing=0.3, flip=0.5)
    hard = HardBatches(spec, images, labels)
    view = hard.draw(seed=3, epoch=5)
    assert sorted(view.image) == list(range(21))
    batches = list(hard.epoch(seed=3, epoch=5))
    assert [len(batch.x) for batch in batches] == [8, 8, 4]  # the odd fifth of the last batch is dropped
    for number, batch in enumerate(batches):
        expected = hard_by_hand(view, number, images.numpy(), labels.numpy(), spec)
        assert torch.allclose(batch.target, expected.target, atol=1e-6)
        assert torch.allclose(batch.x, expected.x, atol=1e-4)


def test_weight_decay_spares_biases_and_norms() -> None:
    from hald.networks.build import build_model

    model = build_model("small/resnet10-w4", 10, 32)
    decayed, rest = make_optimizer(model, run_spec()).param_groups
    assert decayed["weight_decay"] == 0.01
    assert rest["weight_decay"] == 0.0
    assert all(p.ndim > 1 for p in decayed["params"])
    assert all(p.ndim == 1 for p in rest["params"])


def test_weight_decay_spares_what_is_no_weight_of_a_layer() -> None:
    """A vision transformer's class token and position embedding have more than one dimension."""
    from hald.networks.build import build_model

    model = build_model("timm/vit_tiny_patch16_224", 4, 224)
    decayed, rest = make_optimizer(model, run_spec()).param_groups
    named = {id(p): name for name, p in model.named_parameters()}
    spared = {named[id(p)] for p in rest["params"]}
    assert {"cls_token", "pos_embed", "head.bias", "norm.weight"} <= spared
    assert {"head.weight", "patch_embed.proj.weight"} <= {named[id(p)] for p in decayed["params"]}


# No value is a default. The goldens compare the same in float64; here it is a real network, to what float32 allows.
CHANGED = {
    "lr": 0.003,
    "eta": 1.4,
    "weight_decay": 3.0,
    "beta2": 0.9,
    "smoothing": 0.6,
    "flip": 0.5,
    "measure_every": 1,
    "loss": LossSpec("kl", {"temperature": 4.0, "squared": False}),
}
WAYS = {
    "released": {},
    "reset": {"handover": "reset"},
    "aligned": {"loss": LossSpec("kl", {"temperature": 4.0, "squared": True}), "hard_temperature": 2.0},
    "pruned": {"top_k": 3, "sampling": "replacement", "pool": 4},
}


def soft_by_hand(arrays: zarr.Group, number: int, spec: RunSpec) -> Batch:
    """Stored batch `number`, read with zarr alone: 20 images in batches of 8, 8 and 4; labels as codec u8 has them."""
    view, index = divmod(number, 3)
    rows = slice(8 * index, min(8 * index + 8, 20))
    geometry = (np.asarray(arrays[name][view, rows]) for name in ("image", "box", "flip", "partner"))
    x = by_hand(np.asarray(arrays["images"]), *geometry, np.asarray(arrays["cut"][view, index]))
    logits = arrays["q"][view, rows].astype(np.float32) * arrays["scale"][view, rows][:, None]
    if spec.top_k:
        logits[np.argsort(np.argsort(-logits, axis=1), axis=1) >= spec.top_k] = -np.inf
    return Batch(torch.from_numpy(x).float(), torch.from_numpy(logits))


@pytest.mark.parametrize("way", WAYS)
def test_a_whole_training_against_plain_arithmetic(way: str, digits: Path, store: Path, tmp_path: Path) -> None:
    """Soft, hard, soft with the batches, both losses, AdamW and the rate written out: every epoch has the same loss."""
    spec = run_spec(**(CHANGED | WAYS[way]))
    target = Training(digits, store, tmp_path)
    target.train(spec, [0])
    arrays, model = zarr.open_group(store, mode="r"), make_student(spec, 0, CPU).model.train()
    images, labels = np.asarray(arrays["images"]), np.arange(20) // 2
    draws = HardBatches(spec, torch.from_numpy(images), torch.from_numpy(labels))  # their law has tests of its own
    parameters = list(model.parameters())
    step, first, second = 0, [torch.zeros_like(p) for p in parameters], [torch.zeros_like(p) for p in parameters]
    losses = []
    for epoch, (kind, inside) in enumerate(
        [("soft", 0), ("soft", 1), ("hard", 0), ("hard", 1), ("soft", 0), ("soft", 1)]
    ):
        if way == "reset" and inside == 0:
            step, first, second = 0, [m * 0 for m in first], [v * 0 for v in second]
        rate = 0.003 / 2 * (1 + math.cos(math.pi * epoch / (1.4 * 6)))
        ids = pool_ids(spec.pool, 3, 0, 2 * (epoch // 4), inside, spec.sampling)
        losses.append([])
        for number in range(3):
            if kind == "soft":
                batch = soft_by_hand(arrays, int(ids[number]), spec)
                student, hot = (model(batch.x) / 4).log_softmax(1), (batch.target / 4).softmax(1)
                loss = (torch.where(hot > 0, hot.log() - student, 0.0) * hot).sum(1).mean()
                loss = loss * 16 if way == "aligned" else loss
            else:
                batch = hard_by_hand(draws.draw(0, epoch), number, images, labels, spec)
                hotter = 2 if way == "aligned" else 1
                loss = -(hotter**2) * (batch.target * (model(batch.x) / hotter).log_softmax(1)).sum(1).mean()
            losses[-1].append(loss.item())
            gradients = torch.autograd.grad(loss, parameters)
            step += 1
            with torch.no_grad():
                for p, g, m, v in zip(parameters, gradients, first, second, strict=True):
                    m.mul_(0.9).add_(0.1 * g)
                    v.mul_(0.9).add_(0.1 * g * g)
                    p.mul_(1 - rate * 3.0 if p.ndim > 1 else 1)
                    p.sub_(rate * (m / (1 - 0.9**step)) / ((v / (1 - 0.9**step)).sqrt() + 1e-8))
    curve = read_json(target.records / "seed-0.json")["curve"]
    assert [point["loss"] for point in curve] == pytest.approx(
        [sum(few) / len(few) for few in losses], rel=3e-2
    )  # rounding alone: up to 1.2 %, because AdamW divides small gradients by their own size


def test_layers_that_draw_have_new_numbers_in_every_epoch(digits: Path, store: Path, tmp_path: Path) -> None:
    """Six epochs of two seeds, whatever the stages."""
    with layer_seeds() as seeds:
        Training(digits, store, tmp_path).train(run_spec(), [0, 1])
    assert len(set(seeds)) == 12


def test_the_record(digits: Path, store: Path, tmp_path: Path) -> None:
    target = Training(digits, store, tmp_path)
    target.train(run_spec(), [0, 1])
    record = read_json(target.records / "seed-1.json")
    assert record["seed"] == 1
    assert record["curve"][-1]["epoch"] == 6
    assert record["curve"][-1]["stage"] == "soft"
    assert record["slc_effective"] == 4
    files = [entry for view in range(2) for entry in read_json(store / f"views/{view:05d}.json")["files"].values()]
    assert record["label_bytes"] == sum(entry["bytes"] for entry in files)
    assert record["curve"] != read_json(target.records / "seed-0.json")["curve"]
    assert (record["key"], record["code"]) == ("k" * 10, "c" * 64)
    assert not target.partial.exists()
    assert read_json(target.records / "timings/seed-0.json")["work"] == 6 * 20


def test_the_last_epochs_accuracy_counts_and_not_the_bests(
    digits: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = [(10.0, 50.0), (47.5, 60.0), (20.0, 90.0), (30.0, 80.0), (40.0, 95.0), (35.123456, 77.0)]
    answers = iter(measured)
    monkeypatch.setattr(module, "accuracy", lambda *_: next(answers))
    target = Training(digits, store, tmp_path)
    target.train(run_spec(measure_every=1), [0])
    record = read_json(target.records / "seed-0.json")
    assert [point["top1"] for point in record["curve"]] == [10.0, 47.5, 20.0, 30.0, 40.0, 35.1235]
    assert [point["top5"] for point in record["curve"]] == [top5 for _, top5 in measured]
    assert (record["top1"], record["top5"]) == (35.1235, 77.0)
    assert record["best"] == {"epoch": 2, "top1": 47.5}


@pytest.mark.parametrize(("every", "epochs"), [(1, [1, 2, 3, 4, 5, 6]), (4, [4, 6]), (3, [3, 6]), (10, [6])])
def test_accuracy_is_measured_every_few_epochs_and_at_the_end(
    every: int, epochs: list[int], digits: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "accuracy", lambda *_: (0.0, 0.0))
    target = Training(digits, store, tmp_path)
    target.train(run_spec(measure_every=every), [0])
    assert [point["epoch"] for point in read_json(target.records / "seed-0.json")["curve"]] == epochs


def test_hard_labels_alone_need_no_soft_ones(digits: Path, store: Path, tmp_path: Path) -> None:
    """The same training whether labels lie about or not; it is charged for none."""
    found = {}
    for pool in (0, 6):
        target = Training(digits, store, tmp_path / str(pool))
        target.train(run_spec(stages=(Phase("hard", 3),), pool=pool), [0])
        found[pool] = read_json(target.records / "seed-0.json")
    assert found[0]["curve"] == found[6]["curve"]
    assert (found[0]["label_bytes"], found[0]["slc_effective"]) == (0, 0)


def training_job(target: Training, arch: str, phase: str, number: int) -> None:
    """A run of 24 epochs that dies in a chosen place."""
    torch.set_num_threads(1)
    module.CHECKPOINT_EPOCHS = 3
    if phase == "checkpoint":  # while one is being written
        torch.save = deadly(torch.save, number, after=True)
    elif phase == "epoch":
        module.train_epoch = deadly(module.train_epoch, number)
    elif phase == "record":
        module.write_json = deadly(module.write_json, number)
    spec = run_spec(arch=arch, stages=(Phase("soft", 8), Phase("hard", 8), Phase("soft", 8)))
    target.train(spec, [0])


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["small/resnet10-w4", "torchvision/mobilenet_v2"])  # the second has dropout
def test_killed_at_any_moment_the_record_is_the_same(arch: str, digits: Path, store: Path, tmp_path: Path) -> None:
    whole, cut = (Training(digits, store, tmp_path / name) for name in ("whole", "cut"))
    assert finish(start(training_job, whole, arch, "", 0)) == 0
    for phase, number in (("epoch", 2), ("checkpoint", 1), ("epoch", 5), ("checkpoint", 2), ("record", 1)):
        assert finish(start(training_job, cut, arch, phase, number)) == -signal.SIGKILL
        assert not (cut.records / "seed-0.json").exists()
    assert finish(start(training_job, cut, arch, "", 0)) == 0
    assert (whole.records / "seed-0.json").read_bytes() == (cut.records / "seed-0.json").read_bytes()


def test_a_signal_in_the_last_epoch_loses_nothing(
    digits: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Training(digits, store, tmp_path)
    epoch = module.train_epoch

    def signalled(*arguments: object) -> object:
        if arguments[-1] == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return epoch(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "train_epoch", signalled)
    with pytest.raises(Interrupted):
        target.train(run_spec(), [0, 1])
    assert (target.records / "seed-0.json").exists()


def test_images_and_labels_that_do_not_belong_are_refused(digits: Path, store: Path, tmp_path: Path) -> None:
    for changes, message in (
        ({"ipc": 3}, "holds 20 images, the run expects IPC 3 x 10 classes"),
        ({"ipc": 1, "pool": 3}, "holds 20 images, the run expects IPC 1 x 10 classes"),  # they would get other classes
        ({"batch": 4}, "batches of 8 at 32 px, the run wants 4 at 32 px"),
        ({"size": 16}, "batches of 8 at 32 px, the run wants 8 at 16 px"),
    ):
        with pytest.raises(UserError, match=message):
            Training(digits, store, tmp_path).train(run_spec(**changes), [0])
    with pytest.raises(UserError, match="view 2 of label store .* is not complete"):
        Training(digits, store, tmp_path).train(run_spec(pool=7), [0])
    assert not (tmp_path / "records").exists()


def test_an_infinite_loss_stops(digits: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = torch.tensor([1.0, 2.0, float("inf")])
    monkeypatch.setattr(Student, "steps", lambda *_: (losses, None, None))
    with pytest.raises(UserError, match="the loss is inf in batch 2 of 3"):
        Training(digits, store, tmp_path).train(run_spec(), [0])


def test_a_loss_that_is_not_a_number_stops(
    digits: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names epoch and batch; the last checkpoint stays, and a lower rate could go on from there."""
    target = Training(digits, store, tmp_path)
    with pytest.raises(UserError, match=r"epoch 0 \(soft stage\): the loss is nan in batch 1 of 3; lower lr"):
        target.train(run_spec(lr=float("inf")), [0])
    monkeypatch.setattr(module, "CHECKPOINT_EPOCHS", 1)
    rate = module.learning_rate
    monkeypatch.setattr(module, "learning_rate", lambda spec, epoch: rate(spec, epoch) if epoch < 3 else float("inf"))
    with pytest.raises(UserError, match=r"epoch 3 \(hard stage\): the loss is nan in batch 1 .* checkpoint is kept"):
        target.train(run_spec(), [0])
    assert read_json(target.partial / "seed-0/checkpoint.json")["epoch"] == 3
    assert torch.load(target.partial / "seed-0/checkpoint.pt", weights_only=True)["epoch"] == 3
    assert not (target.records / "seed-0.json").exists()


def test_module_has_no_teacher() -> None:
    """Training never loads a teacher."""
    from hald.code_digests import closure, read_sources

    assert "hald.squeeze.teacher" not in closure((module.__name__,), read_sources())
