"""The optimisation loop: every term, schedule, crop and merge against NumPy or by hand."""

import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torchvision.transforms.v2 import functional as tv

from hald.networks.build import build_model
from hald.numerics.random_streams import uniforms
from hald.numerics.views import CROP_WIDTH, crop_boxes
from hald.synthesis.optimiser.bn_matching import Matcher, bn_layers, moments
from hald.synthesis.optimiser.crops_and_rolls import Jitter, draw_jitter, matrices, view_of
from hald.synthesis.optimiser.loop import (
    Problem,
    make_teachers,
    mean_norm,
    merge,
    objective,
    optimise,
    pays_to_compile,
    rate,
    resized,
    total_variation,
)
from hald.synthesis.optimiser.teachers import to_pixels
from hald.synthesis.spec import Recover

CPU = torch.device("cpu")
HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


def network(classes: int = 4) -> nn.Module:
    """Two BN layers with running statistics of their own."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1, bias=False),
        nn.BatchNorm2d(5),
        nn.ReLU(),
        nn.Conv2d(5, 6, 3, stride=2, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, classes),
    )
    for layer in bn_layers(model):
        layer.running_mean = torch.randn(layer.num_features)
        layer.running_var = torch.rand(layer.num_features) + 0.5
    return model.eval().requires_grad_(False)


def numpy_term(model: nn.Module, x: Tensor, first: float) -> float:
    """The BN term as the papers write it, in float64 NumPy on activations taken by hand."""
    total, layers = 0.0, list(model)  # type: ignore[call-overload]
    activation, weight = x.double(), first
    for layer in layers:
        if isinstance(layer, nn.BatchNorm2d):
            a = activation.numpy()
            mean, var = a.mean(axis=(0, 2, 3)), a.var(axis=(0, 2, 3))
            total += weight * math.sqrt(((var - layer.running_var.double().numpy()) ** 2).sum())  # type: ignore[union-attr]
            total += weight * math.sqrt(((mean - layer.running_mean.double().numpy()) ** 2).sum())  # type: ignore[union-attr]
            weight = 1.0
        activation = layer.double()(activation)
        layer.float()
    return total


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_moments_are_those_of_numpy(layout: torch.memory_format) -> None:
    x = (torch.randn(7, 5, 6, 9) * 3 + 10).contiguous(memory_format=layout)
    mean, var = moments(x)
    assert mean.numpy() == pytest.approx(x.double().numpy().mean(axis=(0, 2, 3)), rel=1e-5)
    assert var.numpy() == pytest.approx(x.double().numpy().var(axis=(0, 2, 3)), rel=1e-4)
    assert moments(x.bfloat16())[1].dtype == torch.float32


def test_the_gradient_of_the_moments_is_autograds() -> None:
    x = torch.randn(4, 3, 5, 5, requires_grad=True)
    a, b = torch.randn(3), torch.randn(3)
    mean, var = moments(x)
    (ours,) = torch.autograd.grad((mean * a).sum() + (var * b).sum(), x)
    plain = (x.mean((0, 2, 3)) * a).sum() + (x.var((0, 2, 3), unbiased=False) * b).sum()
    (wanted,) = torch.autograd.grad(plain, x)
    assert torch.allclose(ours, wanted, atol=1e-7)


def test_bn_term_and_loss_against_numpy() -> None:
    x, labels = torch.randn(6, 3, 8, 8), torch.tensor([0, 1, 2, 3, 0, 1])
    expected = numpy_term(network(), x, 10.0)
    model = network()
    logits, term = Matcher(model, 10.0)(x)
    assert float(term) == pytest.approx(expected, rel=1e-5)
    z = logits.double().numpy()
    entropy = -(z - np.log(np.exp(z).sum(axis=1, keepdims=True)))[np.arange(6), labels.numpy()].mean()
    eye = torch.eye(8)
    loss = objective(Matcher(network(), 10.0), Recover(r_bn=0.03, tv=0.1, l2=0.2))(x, eye, eye, labels)
    wanted = entropy + 0.03 * expected + 0.1 * float(total_variation(x)) + 0.2 * float(mean_norm(x))
    assert float(loss) == pytest.approx(wanted, rel=1e-5)


def test_other_targets_can_be_set() -> None:
    x, matcher = torch.randn(6, 3, 8, 8), Matcher(network(), 10.0)
    seen: list[tuple[Tensor, Tensor]] = []
    for layer in bn_layers(matcher.model):
        layer.register_forward_pre_hook(lambda _, inputs: seen.append(moments(inputs[0])))
    matcher(x)
    matcher.targets = seen
    assert float(matcher(x)[1]) == 0.0  # matched with its own statistics


def test_total_variation_and_norm_by_hand() -> None:
    x = torch.tensor([[1.0, 2.0], [4.0, 8.0]]).view(1, 1, 2, 2)
    # right: 1, 4; down: 3, 6; down-right: 7; down-left: 2
    assert float(total_variation(x)) == pytest.approx(math.sqrt(17) + math.sqrt(45) + 7 + 2)
    assert float(mean_norm(torch.cat([x, 2 * x]))) == pytest.approx(1.5 * math.sqrt(85))


def test_rate_by_hand() -> None:
    assert [rate(0.25, t, 4000) for t in (0, 1000, 2000, 3000)] == pytest.approx(
        [0.25, 0.25 * (1 + math.sqrt(0.5)) / 2, 0.125, 0.25 * (1 - math.sqrt(0.5)) / 2]
    )


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 40), st.booleans(), st.integers(-9, 9), st.integers(-9, 9))
def test_a_view_is_torchvisions_crop_flip_and_roll(seed: int, size: int, flip: bool, down: int, right: int) -> None:
    x = torch.randn(3, 3, size, size, generator=torch.Generator().manual_seed(seed))
    box = crop_boxes(np.random.default_rng(seed).random((1, CROP_WIDTH)), size, size, (0.08, 1.0), (0.75, 4 / 3))
    jitter = Jitter(box[None], np.array([[flip]]), np.array([[[down, right]]]))
    rows, columns = matrices(jitter, 0, 1, size, CPU)
    wanted = tv.resized_crop(x, *box[0].tolist(), size=[size, size], antialias=True)
    wanted = torch.roll(wanted.flip(3) if flip else wanted, shifts=(down, right), dims=(2, 3))
    assert torch.allclose(view_of(x, rows[0], columns[0]), wanted, atol=2e-5)


def test_draws_are_addressed_and_in_range() -> None:
    recover = Recover(budgets=(300,), sizes=(32,), roll=(-4, 4), flip=0.5)
    jitter = draw_jitter(recover, 0, 100, 3, 7)
    assert jitter.box.shape == (300, 1, 4)
    assert sorted(np.unique(jitter.roll)) == list(range(-4, 5))
    u = uniforms("recover-views-0", 3, 7, 300, CROP_WIDTH + 3)
    assert np.array_equal(jitter.box[:, 0], crop_boxes(u[:, :CROP_WIDTH], 32, 32, (0.08, 1.0), (0.75, 4 / 3)))
    assert jitter.flip[:, 0].tolist() == (u[:, CROP_WIDTH] < 0.5).tolist()
    shorter = draw_jitter(Recover(budgets=(10,), sizes=(32,), roll=(-4, 4)), 0, 100, 3, 7)
    assert np.array_equal(shorter.box, jitter.box[:10])  # iteration t is the same whatever the length
    each = draw_jitter(Recover(budgets=(5,), sizes=(32,), per_image=True), 0, 4, 3, 7)
    assert len(np.unique(each.box.reshape(-1, 4), axis=0)) > 10
    none = draw_jitter(Recover(budgets=(50,), sizes=(16,), crop=False, roll=(0, 4)), 0, 9, 0, 0)
    assert (none.box == [0, 0, 16, 16]).all()
    assert not none.flip.any()
    assert none.roll.max() == 4


def test_without_crops_a_view_is_the_rolled_image_exactly() -> None:
    jitter = draw_jitter(Recover(budgets=(3,), sizes=(9,), crop=False, roll=(0, 4)), 0, 2, 0, 0)
    x = torch.randn(2, 3, 9, 9)
    rows, columns = matrices(jitter, 0, 3, 9, CPU)
    for t in range(3):
        wanted = torch.roll(x, tuple(jitter.roll[t, 0].tolist()), (2, 3))
        assert torch.equal(view_of(x, rows[t], columns[t]), wanted)


def test_per_image_views_are_each_images_own() -> None:
    recover = Recover(budgets=(2,), sizes=(12,), per_image=True, roll=(0, 4))
    jitter = draw_jitter(recover, 0, 3, 0, 0)
    x = torch.randn(3, 3, 12, 12)
    rows, columns = matrices(jitter, 0, 2, 12, CPU)
    views = view_of(x, rows[1], columns[1])
    for i in range(3):
        alone = Jitter(jitter.box[1:2, i : i + 1], jitter.flip[1:2, i : i + 1], jitter.roll[1:2, i : i + 1])
        r, c = matrices(alone, 0, 1, 12, CPU)
        assert torch.allclose(views[i : i + 1], view_of(x[i : i + 1], r[0], c[0]), atol=1e-6)


def test_merge_by_hand() -> None:
    x, patch = torch.tensor([[0.0, 2.0], [4.0, 6.0]]).view(1, 1, 2, 2), torch.full((1, 1, 4, 4), 8.0)
    # half-pixel centres: output pixels of 4 from 2 sit at -0.25 (clamped to 0), 0.25, 0.75, 1.25 (clamped to 1)
    along = np.array([0.0, 0.25, 0.75, 1.0])
    wanted = 0.5 * (2 * along[None, :] + 4 * along[:, None]) + 0.5 * 8
    assert merge(x, patch, 4, 0.5)[0, 0].numpy() == pytest.approx(wanted)
    # 4 -> 2: output pixels sit between pixels 0 and 1, and between 2 and 3
    ramp = torch.arange(4.0).view(1, 1, 1, 4).expand(1, 1, 4, 4)
    assert resized(ramp, 2)[0, 0, 0].tolist() == [0.5, 2.5]
    assert merge(x, x, 2, 0.3).numpy() == pytest.approx(x.numpy())


def test_pixels_are_rounded_and_clipped() -> None:
    x = torch.tensor([-9.0, (0.6 / 255 - 0.5) / 0.5, (100.4 / 255 - 0.5) / 0.5, (100.6 / 255 - 0.5) / 0.5, 9.0, 0.0])
    assert to_pixels(x.view(1, 1, 1, 6).expand(1, 3, 1, 6), *HALF)[0, 0, 0].tolist() == [0, 1, 100, 101, 255, 128]


class Recording(nn.Module):
    """A network without BN: logits are weighted sums of pixels; remembers who was called."""

    def __init__(self, weight: Tensor, calls: list[int], number: int) -> None:
        super().__init__()
        self.weight, self.calls, self.number = weight, calls, number

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append(self.number)
        return x.flatten(1) @ self.weight


def numpy_adam(
    x: np.ndarray, w: list[np.ndarray], labels: np.ndarray, r: Recover, rolls: list[np.ndarray]
) -> np.ndarray:
    """Adam(0.5, 0.9) anew in every stage, cosine over all, clamp to [-1, 1], teachers in turn; float64."""
    total, t = sum(r.budgets), 0
    for stage, budget in enumerate(r.budgets):
        m, v = np.zeros_like(x), np.zeros_like(x)
        for i in range(1, budget + 1):
            down, right = rolls[stage][i - 1, 0]
            flat = np.roll(x, (down, right), (2, 3)).reshape(len(x), -1)
            z = flat @ w[t % len(w)]
            p = np.exp(z - z.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            p[np.arange(len(x)), labels] -= 1
            g = ((p / len(x)) @ w[t % len(w)].T).reshape(x.shape)
            g = np.roll(g, (-down, -right), (2, 3))
            m, v = 0.5 * m + 0.5 * g, 0.9 * v + 0.1 * g * g
            lr = r.lr * (1 + math.cos(math.pi * t / total)) / 2
            x = x - lr * (m / (1 - 0.5**i)) / (np.sqrt(v / (1 - 0.9**i)) + 1e-8)
            x = np.clip(x, -1, 1)
            t += 1
    return x


def test_the_loop_against_numpy() -> None:
    """Two stages, two teachers in turn: images after seven steps are those of a float64 NumPy Adam."""
    recover = Recover(lr=0.1, budgets=(4, 3), sizes=(4, 4), crop=False, roll=(0, 2))
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(48, 3, generator=generator) for _ in range(2)]
    start, labels = torch.rand(2, 3, 4, 4, generator=generator) * 2 - 1, torch.tensor([0, 2])
    calls: list[int] = []
    matchers = [Matcher(Recording(weight, calls, i), 10.0) for i, weight in enumerate(weights)]
    teachers = make_teachers(matchers, recover, HALF, CPU)
    found = optimise(recover, teachers, Problem(start, labels, (0, 0)))
    assert calls == [0, 1, 0, 1, 0, 1, 0]
    rolls = [draw_jitter(recover, stage, 2, 0, 0).roll for stage in range(2)]
    wanted = numpy_adam(start.double().numpy(), [w.double().numpy() for w in weights], labels.numpy(), recover, rolls)
    assert found.numpy() == pytest.approx(wanted, abs=1e-4)
    assert found.abs().max() <= 1  # the range of pixels for mean and deviation 0.5


def test_views_are_drawn_in_blocks_that_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices are made for some iterations at a time; the last block is short."""
    recover = Recover(lr=0.1, budgets=(7, 2), sizes=(4, 4), scale=(0.3, 1.0), roll=(0, 2))
    teachers = make_teachers([Matcher(network(), 10.0)], recover, HALF, CPU)
    problem = Problem(torch.rand(2, 3, 4, 4) * 2 - 1, torch.tensor([0, 2]), (0, 0))
    whole = optimise(recover, teachers, problem)
    monkeypatch.setattr("hald.synthesis.optimiser.loop.BLOCK", 3)
    assert torch.equal(optimise(recover, teachers, problem), whole)


def test_fadrm_blends_between_stages_and_only_there() -> None:
    """With rate zero nothing moves but the K - 1 blends: x -> (x + P) / 2 twice."""
    recover = Recover(lr=0.0, budgets=(1, 1, 1), sizes=(4, 4, 4), crop=False, roll=(0, 0))
    teachers = make_teachers([Matcher(network(), 10.0)], recover, HALF, CPU)
    start, patch = torch.full((2, 3, 4, 4), 0.8), torch.zeros(2, 3, 4, 4)
    problem = Problem(start, torch.tensor([0, 1]), (0, 0), residual=patch, alpha=0.5)
    assert torch.allclose(optimise(recover, teachers, problem), torch.full((2, 3, 4, 4), 0.2))


def test_stages_change_the_size() -> None:
    recover = Recover(lr=0.1, budgets=(1, 2), sizes=(6, 8), roll=(0, 2))
    teachers = make_teachers([Matcher(network(), 10.0)], recover, HALF, CPU)
    patch = torch.zeros(2, 3, 8, 8)
    problem = Problem(resized(patch, 6), torch.tensor([0, 1]), (0, 0), residual=patch, alpha=0.5)
    assert optimise(recover, teachers, problem).shape == (2, 3, 8, 8)


def test_compiling_is_chosen_by_the_iterations_of_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, wide = torch.device("cuda"), [build_model("small/resnet10-w8", 10, 32)]
    long, short = (Recover(budgets=(budget,) * 4, sizes=(32,) * 4) for budget in (500, 499))
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/g++")
    assert pays_to_compile(long, wide, cuda)
    assert pays_to_compile(long, wide, CPU)
    assert not pays_to_compile(short, wide, cuda)
    assert not pays_to_compile(long, [build_model("small/resnet10-w4", 10, 32)], CPU)  # dies in the backward pass
    assert pays_to_compile(replace(short, compile="on"), wide, CPU)
    assert not pays_to_compile(replace(long, compile="off"), wide, cuda)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert not pays_to_compile(long, wide, CPU)


def test_cross_entropy_is_of_the_wanted_class() -> None:
    x = torch.randn(3, 3, 8, 8)
    model, eye = network(), torch.eye(8)
    found = objective(Matcher(network(), 1.0), Recover(r_bn=0.0))(x, eye, eye, torch.tensor([1, 0, 2]))
    assert float(found) == pytest.approx(float(F.cross_entropy(model(x), torch.tensor([1, 0, 2]))), rel=1e-5)


def test_a_compiled_step_follows_new_targets_without_compiling_again() -> None:
    """LPLD changes the targets with every class; they must neither be baked in nor cost a compilation each."""
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")
    matcher = Matcher(network(), 10.0)
    plain = objective(matcher, Recover())
    compiled = torch.compile(plain, dynamic=False, backend=counter)
    x, labels, eye = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3]), torch.eye(8)
    losses = []
    for shift in range(3):
        matcher.targets = [(mean + shift, var + shift) for mean, var in matcher.targets]
        losses.append(float(plain(x, eye, eye, labels)))
        assert float(compiled(x, eye, eye, labels)) == pytest.approx(losses[-1], rel=1e-5)
    assert len(set(losses)) == 3
    assert counter.frame_count == 1
