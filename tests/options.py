"""The options of the config, one line each: a second value, and what is then seen where the computation ends.

A row says nothing about how the package is made: it holds YAML, and what libraries are asked for or files contain.
Every image of its datasets is a ruler (`ruler`), so that whatever a network is fed with tells its image, crop and flip.
"""

import contextlib
import copy
import json
import math
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torchvision
import yaml
from PIL import Image
from safetensors.torch import load_file
from scipy.special import betaincinv
from torch import Tensor
from torch.overrides import TorchFunctionMode

from hald.errors import UserError

if TYPE_CHECKING:
    from test_options import Case, Pass, Seen

Expectation = Callable[["Case"], None]

SIZE, STEP = 16, 17  # pixels of an image, grey levels between neighbours

# What all rows change. Names: dataset waves, teacher t, images x, student s, evaluation e.
BASE = yaml.safe_load("""
datasets:
  waves:
    {source: imagefolder, root: $HALD_DATA/waves, size: 16, classes: 3, mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25],
     augment: {scale: [0.5, 1.0], flip: 0.0}}
dataset: waves
threads: 1
epochs: 2
measure_every: 1
teacher: t
teachers:
  t: {arch: small/resnet10-w4, recipe: {epochs: 1, batch: 6, lr: 0.03, padding: 0}}
images:
  x: {method: real}
labels: {batch: 6, codec: f16}
students:
  s: {arch: small/resnet10-w4}
evaluations:
  e: {order: soft}
tables:
  t: {caption: small, images: [x], ipc: [2], slc: [2], students: [s], evaluations: [e], seeds: 1}
""")


def ruler(label: int, number: int, size: int) -> np.ndarray:
    """(size, size, 3) uint8: red grows to the right, green downwards, blue is the image's own mark."""
    y, x = np.mgrid[:size, :size]
    return np.stack([STEP * x, STEP * y, np.full_like(x, mark(label, number))], axis=2).astype(np.uint8)


def mark(label: int, number: int) -> int:
    """The blue of image `number` = 100 x split + position."""
    return 80 * label + 5 + number % 100 + 20 * (number // 100)


def marks_of(split: int, count: int, labels: Sequence[int] = range(3)) -> set[int]:
    """The marks of a split (train 0, test 1, val 2, learn 3; of dataset `other`: test 2, train 3)."""
    return {mark(label, 100 * split + i) for label in labels for i in range(count)}


# Reading rulers


MEAN, STD = (0.5,) * 3, (0.25,) * 3


def grey(x: Tensor, mean: Sequence[float] = MEAN, std: Sequence[float] = STD) -> np.ndarray:
    """What a network was fed with as grey levels, (n, 3, S, S)."""
    shape = (1, 3, 1, 1)
    return 255 * (x.double().numpy() * np.reshape(std, shape) + np.reshape(mean, shape))


def fed(looks: Sequence["Pass"]) -> np.ndarray:
    """The pictures of some passes."""
    return np.concatenate([grey(look.x) for look in looks])


def marks(pictures: np.ndarray) -> list[int]:
    """The image that each picture shows."""
    return np.rint(np.median(pictures[:, 2], axis=(1, 2))).astype(int).tolist()


def classes_of(pictures: np.ndarray) -> np.ndarray:
    return np.array(marks(pictures)) // 80


def slopes(pictures: np.ndarray, over: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Height and width of the crop that each picture shows, in pixels; a mirrored one has a negative width.

    The median of differences `over` so many pixels, so that a rectangle of another crop does not count.
    """
    down = pictures[:, 1, over:] - pictures[:, 1, :-over]
    right = pictures[:, 0, :, over:] - pictures[:, 0, :, :-over]
    height, width = (np.median(part, axis=(1, 2)) * pictures.shape[-1] / (STEP * over) for part in (down, right))
    return height, width


def is_whole(pictures: np.ndarray) -> bool:
    """Whether pictures are whole rulers, not one grey level off."""
    wanted = np.stack([ruler(m // 80, m % 80 - 5, SIZE).transpose(2, 0, 1) for m in marks(pictures)])
    return np.abs(pictures - wanted).max() < 0.01


# Sums in float64


def softmax(logits: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        e = np.exp(logits - logits.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)


def divergence(student: np.ndarray, teacher: np.ndarray) -> float:
    """Mean over the rows of KL(teacher || student) of two tables of logits."""
    p, q = softmax(teacher), softmax(student)
    kept = p > 0
    return float((p[kept] * np.log(p[kept] / q[kept])).sum() / len(p))


def entropy(logits: np.ndarray, target: np.ndarray) -> float:
    """Mean cross-entropy with class probabilities."""
    return float(-(target * np.log(softmax(logits))).sum() / len(logits))


def numbers(values: Tensor) -> np.ndarray:
    return values.double().numpy()


# Expectations: data


def measured_on(split: int, labels: Sequence[int] = range(3)) -> Expectation:
    """The teacher is measured with these images."""

    def check(case: "Case") -> None:
        assert sorted(marks(fed(case.seen("squeeze").tested()))) == sorted(marks_of(split, 5, labels))

    return check


def trained_on(split: int) -> Expectation:
    """The teacher is trained with these images."""

    def check(case: "Case") -> None:
        assert set(marks(fed(case.seen("squeeze").trained()))) == marks_of(split, 12)

    return check


def sides(size: int) -> Expectation:
    """Networks see, and image sets have, images of that size."""

    def check(case: "Case") -> None:
        assert case.images().shape[2:] == (size, size)
        for rule in ("squeeze", "relabel", "evaluate"):
            assert {look.x.shape[2:] for look in case.seen(rule).passes} == {(size, size)}, rule

    return check


def columns(classes: int) -> Expectation:
    """Networks answer for so many classes."""

    def check(case: "Case") -> None:
        for rule in ("squeeze", "relabel", "evaluate"):
            assert {look.logits.shape[1] for look in case.seen(rule).passes} == {classes}, rule

    return check


def resized_to(short: int) -> Expectation:
    """Test images are resized and cut as PIL does it."""

    def check(case: "Case") -> None:
        first = (short - SIZE) // 2
        for picture in fed(case.seen("squeeze").tested()):
            m = marks(picture[None])[0]
            image = Image.fromarray(ruler(m // 80, m % 80 - 5, SIZE)).resize((short, short), Image.Resampling.BILINEAR)
            wanted = np.asarray(image)[first : first + SIZE, first : first + SIZE].transpose(2, 0, 1)
            np.testing.assert_allclose(picture, wanted, atol=0.01)

    return check


def normalised(mean: Sequence[float], std: Sequence[float], *rules: str) -> Expectation:
    """Whole rulers, when what networks were fed with is taken back to grey levels with these statistics."""

    def check(case: "Case") -> None:
        for rule in rules:
            looks = case.seen(rule).passes if rule != "recover" else [case.seen(rule).steps[0].look]
            assert looks
            for look in looks:
                assert is_whole(grey(look.x, mean, std)), rule

    return check


def cropped(height: int, width: int, *rules: str) -> Expectation:
    """All random crops have this size; a negative width is that of mirrored ones."""

    def check(case: "Case") -> None:
        for rule in rules:
            seen = case.seen(rule)
            looks = seen.trained() if rule in ("squeeze", "evaluate") else seen.passes
            looks = [seen.steps[0].look] if rule == "recover" else looks
            over = 8 if rule == "rank" else 1  # crops of a ranking are rounded to 8 bits
            for found, wanted in zip(slopes(fed(looks), over), (height, width), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=0.02, err_msg=rule)

    return check


def asks_torchvision(name: str, **wanted: object) -> Expectation:
    """Which dataset class of torchvision is read, and how."""

    def check(case: "Case") -> None:
        asked: list[tuple[str, dict[str, Any]]] = []
        with pytest.MonkeyPatch.context() as patch:
            for known in ("CIFAR10", "CIFAR100"):
                patch.setattr(torchvision.datasets, known, _reader(known, asked))
            case.files("dataset")
        assert {kind for kind, _ in asked} == {name}
        assert sorted(given["train"] for _, given in asked) == [False, True]
        for _, given in asked:
            assert wanted.items() <= given.items()

    return check


def _reader(name: str, asked: list[tuple[str, dict[str, Any]]]) -> Callable[..., Any]:
    class Reader:
        classes = ("a", "b", "c")
        targets = (0, 1, 2) * 5
        data = np.zeros((15, SIZE, SIZE, 3), dtype=np.uint8)

        def __init__(self, root: str, **how: Any) -> None:
            asked.append((name, how))

    return Reader


def refused(message: str) -> Expectation:
    """The image set is not made."""

    def check(case: "Case") -> None:
        with pytest.raises(UserError, match=message):
            case.files("synthesize")

    return check


# Expectations: teachers


def optimiser(rule: str, kind: str, **wanted: Any) -> Expectation:
    """What the last optimiser was made with, and that all its parameters have it."""

    def check(case: "Case") -> None:
        seen = case.beginning(1) if rule == "evaluate" else case.seen(rule)
        found = seen.made[-1].optimizer
        assert type(found).__name__ == kind
        assert {name: found.defaults[name] for name in wanted} == wanted
        steady = wanted.keys() - {"lr"}  # which the schedule moves
        assert all(group[name] == wanted[name] for group in found.param_groups for name in steady)

    return check


def decay(value: float) -> Expectation:
    """AdamW decays weights of more than one dimension, and nothing else."""

    def check(case: "Case") -> None:
        groups = case.beginning(1).made[-1].optimizer.param_groups
        found = {(p.ndim > 1, group["weight_decay"]) for group in groups for p in group["params"]}
        assert found == {(True, value), (False, 0.0)}

    return check


def rates(rule: str, *wanted: float) -> Expectation:
    """The learning rate of every step."""

    def check(case: "Case") -> None:
        assert [step.lr for step in case.seen(rule).steps] == pytest.approx(wanted)

    return check


def batches(rule: str, *wanted: int) -> Expectation:
    """The images of every optimiser step or, where there is none, of every pass."""

    def check(case: "Case") -> None:
        seen = case.seen(rule)
        looks = [step.look for step in seen.steps] or seen.passes
        assert [len(look.x) for look in looks] == list(wanted)

    return check


def borders(width: int) -> Expectation:
    """Training images have up to so many pixels of zeros at their edges."""

    def check(case: "Case") -> None:
        pictures = fed(case.seen("squeeze").trained())
        empty = np.abs(pictures[:, 2]) < 0.01  # no image has a blue of zero
        assert empty.all(axis=2).sum(axis=1).max() == width
        assert empty.all(axis=1).sum(axis=1).max() == width

    return check


def stem(rule: str, *widths: int) -> Expectation:
    """The channels of the first convolution of the networks in use, in turn."""

    def check(case: "Case") -> None:
        seen = case.seen(rule)
        looks = [step.look for step in seen.steps] or seen.passes
        assert [stem_of(look) for look in looks[: len(widths)]] == list(widths)
        assert {stem_of(look) for look in looks} == set(widths)

    return check


def stem_of(look: "Pass") -> int:
    return len(next(look.network.parameters()))


def weights_of(file: str) -> Expectation:
    """The teacher's weights are those of a file."""

    def check(case: "Case") -> None:
        wanted = load_file(_foreign(case, file))
        found = load_file(case.file("squeeze").parent / "teacher.safetensors")
        assert all(torch.equal(found[name], value) for name, value in wanted.items())

    return check


def _foreign(case: "Case", file: str) -> Path:
    return case.lab.folder / "data" / file


def fetched(arch: str, weights: str) -> Expectation:
    """Which weights torchvision is asked for; they are kept as it gives them."""

    def check(case: "Case") -> None:
        asked = []
        state = {"bias": torch.arange(3.0)}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                torchvision.models.WeightsEnum, "get_state_dict", lambda member, **_: asked.append(member) or state
            )
            (file,) = case.files("weights")
        assert asked == [torchvision.models.get_model_weights(arch)[weights]]
        assert torch.equal(load_file(file)["bias"], state["bias"])

    return check


def seeded(value: int) -> Expectation:
    """A teacher's seed: torch's when it is made; images come in another order than with the seed before."""

    def check(case: "Case") -> None:
        seen, before = case.seen("squeeze"), case.was.seen("squeeze")
        assert (seen.made[0].seed, before.made[0].seed) == (value, 0)
        assert marks(fed(seen.trained())) != marks(fed(before.trained()))

    return check


# Expectations: images


def chosen_from(split: int, count: int) -> Expectation:
    """The images of a set."""

    def check(case: "Case") -> None:
        assert set(marks(case.images())) <= marks_of(split, count)

    return check


def other_images(case: "Case") -> None:
    """Another seed: other images, or another start."""
    assert not np.array_equal(case.images(), case.was.images())


def whole_images(case: "Case") -> None:
    assert is_whole(case.images())


def cut_images(case: "Case") -> None:
    for sizes in slopes(case.images().astype(float)):
        assert (np.abs(sizes) < SIZE).all()


def looked_at(images: int, crops: int) -> Expectation:
    """Of every class, so many images with so many crops each are scored."""

    def check(case: "Case") -> None:
        found = [marks(fed([look])) for look in case.seen("rank").passes]
        assert [len(set(each)) for each in found] == [images] * 3
        assert [len(each) for each in found] == [images * crops] * 3

    return check


def mosaics(factor: int) -> Expectation:
    """Scored are crops of a part of the side, in an empty canvas; every cell of an image has one of them."""

    def check(case: "Case") -> None:
        side = SIZE // factor
        edge = (SIZE - side) // 2
        for look in case.seen("rank").passes:
            used = look.x.abs().amax(dim=(0, 1)) > 0
            assert used.sum() == side**2
            assert used[edge : edge + side, edge : edge + side].all()
        blue = case.images()[:, 2].reshape(-1, factor, side, factor, side).transpose(0, 1, 3, 2, 4)
        assert (blue == blue[..., :1, :1]).all()
        assert any(len(np.unique(image)) > 1 for image in blue)

    return check


def of_highest_loss(case: "Case") -> None:
    """The images are those of each class that the teacher finds hardest."""
    for look in case.seen("rank").passes:
        shown = fed([look])
        label = classes_of(shown)
        loss = -np.log(softmax(numbers(look.logits))[np.arange(len(label)), label])
        hardest = np.array(marks(shown))[np.argsort(-loss)[:2]]
        found = [m for m in marks(case.images()) if m // 80 == label[0]]
        assert sorted(found) == sorted(hardest)


def normed_by_batch(case: "Case") -> None:
    """The teacher's answers are those of the network in training mode."""
    for look in case.seen("relabel").passes:
        with torch.no_grad():
            np.testing.assert_allclose(look.logits, copy.deepcopy(look.network).train()(look.x), atol=1e-5)


# Expectations: optimised images


def started(seen: "Seen", number: int = 0) -> np.ndarray:
    return numbers(seen.made[number].start[0])


def starts_from_patches(case: "Case") -> None:
    """SRe2L++: whole rulers; SRe2L: normal noise."""
    assert is_whole(grey(torch.from_numpy(started(case.seen("recover")))))
    noise = started(case.was.seen("recover"))
    assert abs(noise.mean()) < 0.1
    assert noise.std() == pytest.approx(1, abs=0.1)


def blended(share: float) -> Expectation:
    """FADRM's second stage begins with that share of the first one's end and the rest of the patch."""

    def check(case: "Case") -> None:
        seen = case.seen("recover")
        (end,) = [p for group in seen.made[0].optimizer.param_groups for p in group["params"]]
        patch = started(seen)
        assert np.abs(patch - numbers(end.detach())).max() > 0.1
        wanted = share * numbers(end.detach()) + (1 - share) * patch
        np.testing.assert_allclose(started(seen, 1), wanted, atol=1e-5)

    return check


Targets = Callable[["Case", int], list[tuple[np.ndarray, np.ndarray]]]


def objective(
    r_bn: float = 0.01, first: float = 10, tv: float = 0, l2: float = 0, targets: Targets | None = None
) -> Expectation:
    """Every step's loss: cross-entropy, the distance of BN statistics, and the terms of the view itself."""

    def check(case: "Case") -> None:
        for number, step in enumerate(case.seen("recover").steps):
            x, logits = numbers(step.look.x), numbers(step.look.logits)
            label = np.arange(3) if targets is None else np.full(len(x), number // 2)
            wanted = targets(case, number // 2) if targets else [running(norm) for norm in step.look.norms]
            loss = entropy(logits, np.eye(3)[label])
            for layer, (norm, (mean, var)) in enumerate(zip(step.look.norms, wanted, strict=True)):
                inputs = numbers(norm["input"])
                distance = np.linalg.norm(inputs.mean(axis=(0, 2, 3)) - mean)
                distance += np.linalg.norm(inputs.var(axis=(0, 2, 3)) - var)
                loss += r_bn * (first if layer == 0 else 1) * distance
            loss += tv * variation(x) + l2 * np.linalg.norm(x.reshape(len(x), -1), axis=1).mean()
            assert step.loss == pytest.approx(loss, rel=1e-4)

    return check


def running(norm: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    return numbers(norm["running_mean"]), numbers(norm["running_var"])


def variation(x: np.ndarray) -> float:
    """Norms of the differences to the neighbours at the right, below, and on both diagonals."""
    differences = [
        x[..., 1:] - x[..., :-1],
        x[..., 1:, :] - x[..., :-1, :],
        x[..., 1:, 1:] - x[..., :-1, :-1],
        x[..., 1:, :-1] - x[..., :-1, 1:],
    ]
    return float(sum(np.linalg.norm(part) for part in differences))


def moving_average(case: "Case", label: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """A class's statistics: 0.9 of the old ones and 0.1 of each batch's, from mean 0 and variance 1."""
    found: list[tuple[Any, Any]] = [(0.0, 1.0)] * len(case.seen("statistics").passes[0].norms)
    for look in case.seen("statistics").passes:
        members = classes_of(fed([look])) == label
        for layer, norm in enumerate(look.norms):
            inputs = numbers(norm["input"])[members]
            if len(inputs):
                mean, var = found[layer]
                new = inputs.mean(axis=(0, 2, 3)), inputs.var(axis=(0, 2, 3))
                found[layer] = 0.9 * mean + 0.1 * new[0], 0.9 * var + 0.1 * new[1]
    return found


def views(check: Callable[[np.ndarray, np.ndarray], bool]) -> Expectation:
    """What the first view of the images is to the images at their start, (3, 3, S, S) each."""

    def see(case: "Case") -> None:
        seen = case.seen("recover")
        assert check(numbers(seen.steps[0].look.x), started(seen))

    return see


def moved(shift: int) -> Callable[[np.ndarray, np.ndarray], bool]:
    return lambda view, start: np.allclose(view, np.roll(start, (shift, shift), axis=(2, 3)), atol=1e-5)


def moved_one_by_one(view: np.ndarray, start: np.ndarray) -> bool:
    """Each image by another cyclic shift."""
    shifts = [(down, right) for down in range(SIZE) for right in range(SIZE)]
    found = [
        next(shift for shift in shifts if np.allclose(image, np.roll(first, shift, axis=(1, 2)), atol=1e-5))
        for image, first in zip(view, start, strict=True)
    ]
    return len(set(found)) > 1


def stage_sides(*wanted: int) -> Expectation:
    """The side of the images of every step."""

    def check(case: "Case") -> None:
        assert [step.look.x.shape[-1] for step in case.seen("recover").steps[: len(wanted)]] == list(wanted)

    return check


def mixed_on_gpu(case: "Case") -> None:
    """Autocast to bfloat16 on a GPU, here a pretended one."""
    case.files("squeeze")
    with pretended_gpu():
        asked = case.seen("recover").autocasts

    assert asked
    assert all(given["device_type"] == "cuda" and given["enabled"] for given in asked)
    assert all(given["dtype"] == torch.bfloat16 for given in asked)


class _Pretended(TorchFunctionMode):
    """Every tensor says that it is on a GPU; whatever is asked of the GPU happens on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == Tensor.device.__get__:  # made anew by every look at it
            return torch.device("cuda")
        given = {name: _here(value) for name, value in (kwargs or {}).items()}
        return func(*map(_here, args), **given)


def _here(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == "cuda" else value


@contextlib.contextmanager
def pretended_gpu() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), _Pretended():
        warnings.filterwarnings("ignore", "CUDA is not available")
        patch.setenv("HALD_DEVICE", "cuda")
        yield


def compiled(rule: str, **wanted: object) -> Expectation:
    """How torch.compile is called."""

    def check(case: "Case") -> None:
        asked = (case.beginning(1) if rule == "evaluate" else case.seen(rule)).compiled
        assert asked
        assert all(wanted.items() <= how.items() for how in asked)

    return check


# Expectations: labels


def centred(logits: np.ndarray) -> np.ndarray:
    return logits - logits.mean(axis=1, keepdims=True)


def summed(*weights: float) -> Expectation:
    """Stored logits are the weighted sum of those of the teachers of 4 and of 8 channels."""

    def check(case: "Case") -> None:
        answers = {stem_of(look): numbers(look.logits) for look in case.seen("relabel").passes}
        wanted = weights[0] * answers[4] + weights[1] * answers[8]
        np.testing.assert_allclose(case.stored()["q"].astype(float), centred(wanted), rtol=1e-3)

    return check


def label_batches(size: int) -> Expectation:
    """Partners stay inside batches of this size, and students are trained on such."""

    def check(case: "Case") -> None:
        assert case.stored()["partner"].max() == size - 1
        assert len(case.seen("evaluate").steps[0].look.x) == size

    return check


def blends(case: "Case") -> None:
    """MixUp: what teacher and student see is lam of an image and the rest of its partner."""
    view, blue = case.stored(), np.array(marks(case.images()))[case.stored()["image"]]
    wanted = view["lam"] * blue + (1 - view["lam"]) * blue[view["partner"]]
    for rule in ("relabel", "evaluate"):
        look = (case.seen(rule).trained() or case.seen(rule).passes)[0]
        pictures = fed([look])[:, 2]
        np.testing.assert_allclose(pictures, np.broadcast_to(wanted[:, None, None], pictures.shape), atol=0.01)


def shares(alpha: float) -> Expectation:
    """The same draws as shares of Beta(alpha, alpha) instead of Beta(1, 1)."""

    def check(case: "Case") -> None:
        uniform = case.was.stored()["lam"]
        np.testing.assert_allclose(case.stored()["lam"], betaincinv(alpha, alpha, uniform))
        assert abs(case.stored()["lam"] - uniform).max() > 0.01

    return check


def stored_as(dtype: str, width: int = 3, largest: int | None = None) -> Expectation:
    """Type, columns and largest value of stored logits."""

    def check(case: "Case") -> None:
        q = case.stored()["q"]
        assert (str(q.dtype), q.shape[1]) == (dtype, width)
        assert largest is None or q.max() == largest

    return check


def other_views(case: "Case") -> None:
    """Other orders, crops and rectangles."""
    now, before = case.stored(), case.was.stored()
    assert all(not np.array_equal(now[name], before[name]) for name in ("image", "box", "cut", "lam"))


# Expectations: trainings


def course(kinds: str) -> Expectation:
    """The kind of every step: soft or hard."""

    def check(case: "Case") -> None:
        assert kinds_of(case.seen("evaluate")) == kinds

    return check


def kinds_of(seen: "Seen") -> str:
    """From the last loss before each step: a divergence is soft, a cross-entropy hard."""
    return "".join("h" if step.calls[-1][0] == "cross_entropy" else "s" for step in seen.steps)


def curve(*epochs: int) -> Expectation:
    """Epochs after which the student is tested."""

    def check(case: "Case") -> None:
        assert [point["epoch"] for point in case.record()["curve"]] == list(epochs)
        assert len([look for look in case.seen("evaluate").tested() if len(look.x) == 15]) == len(epochs)

    return check


@dataclass(frozen=True)
class Labelled:
    """The only stored batch of a store, as the losses want it."""

    teacher: np.ndarray  # (6, 3) logits
    own: np.ndarray  # (6, 3) one at the image's class
    mixed: np.ndarray  # (6, 3) classes in the share of the picture that is theirs

    @classmethod
    def of(cls, case: "Case") -> "Labelled":
        view = case.stored()
        own = np.eye(3)[view["image"] // 2]
        top, left, bottom, right = view["cut"][0].astype(int)
        share = 1 - (bottom - top) * (right - left) / SIZE**2
        return cls(view["q"].astype(float), own, share * own + (1 - share) * own[view["partner"]])


Formula = Callable[[np.ndarray, Labelled], float]


def losses(*formulas: Formula) -> Expectation:
    """The loss of every soft epoch, one step each, from the student's logits and what is stored."""

    def check(case: "Case") -> None:
        steps, labelled = case.seen("evaluate").steps, Labelled.of(case)
        assert len(steps) == 2
        for step, formula in zip(steps, formulas * (2 // len(formulas)), strict=True):
            assert step.loss == pytest.approx(formula(numbers(step.look.logits), labelled), rel=1e-4)

    return check


def kl(temperature: float = 20, scale: float = 1, kept: int = 3) -> Formula:
    def loss(logits: np.ndarray, labelled: Labelled) -> float:
        lowest = np.sort(labelled.teacher, axis=1)[:, 3 - kept][:, None]
        teacher = np.where(labelled.teacher >= lowest, labelled.teacher, -np.inf)
        return scale * divergence(logits / temperature, teacher / temperature)

    return loss


def joint(weight: float = 1, smoothing: float = 0.8) -> Formula:
    def loss(logits: np.ndarray, labelled: Labelled) -> float:
        hard = (1 - smoothing) * labelled.mixed + smoothing / 3
        return kl()(logits, labelled) + weight * entropy(logits, hard)

    return loss


def gift(weight: float = 0.1, mixed: bool = False) -> Formula:
    def unit(table: np.ndarray) -> np.ndarray:
        return table / np.linalg.norm(table, axis=1, keepdims=True)

    def loss(logits: np.ndarray, labelled: Labelled) -> float:
        label = (labelled.mixed if mixed else labelled.own) * (0.9 - 0.05) + 0.05
        target = unit(centred(labelled.teacher)) + weight * unit(label)
        return 1 - float((unit(logits) * unit(target)).sum(axis=1).mean())

    return loss


def annealed(*temperatures: float) -> Expectation:
    """LPQLD: the teacher's temperature of every epoch; the student's is the best of 0.01 .. 1 on the last batch."""

    def check(case: "Case") -> None:
        own, labelled = 1.0, Labelled.of(case)
        for step, temperature in zip(case.seen("evaluate").steps, temperatures, strict=True):
            logits, teacher = numbers(step.look.logits), labelled.teacher / temperature
            assert step.loss == pytest.approx(divergence(logits / own, teacher), rel=1e-3)
            own = min(np.arange(1, 101) / 100, key=lambda t: divergence(logits / t, teacher))

    return check


def annealed_and_calibrated(temperature: float) -> Expectation:
    """The same at one temperature, in a training in which the student's own temperature does not stay at 1."""

    def check(case: "Case") -> None:
        steps = case.seen("evaluate").steps
        annealed(*[temperature] * len(steps))(case)
        plain = [divergence(numbers(step.look.logits), Labelled.of(case).teacher / temperature) for step in steps]
        assert any(step.loss != pytest.approx(loss, rel=0.01) for step, loss in zip(steps, plain, strict=True))

    return check


def hard_loss(temperature: float = 1, smoothing: float = 0.8) -> Expectation:
    """The hard stage: smoothed classes of two images, cross-entropy at a temperature times its square."""

    def check(case: "Case") -> None:
        for step in case.seen("evaluate").steps:
            logits, target = numbers(step.look.logits), numbers(step.calls[-1][1])
            np.testing.assert_allclose(target.sum(axis=1), 1, atol=1e-6)
            np.testing.assert_allclose(target.min(axis=1), smoothing / 3, atol=1e-6)
            assert step.loss == pytest.approx(temperature**2 * entropy(logits / temperature, target), rel=1e-4)

    return check


def hard_temperature_matched(case: "Case") -> None:
    """The temperature at which the stored labels are as sure as smoothed ones; losses have it."""
    temperature = case.record()["hard_temperature"]
    sure = softmax(case.stored()["q"].astype(float) / temperature).max(axis=1).mean()
    assert sure == pytest.approx(0.1 + 0.9 / 3, abs=1e-3)
    assert abs(temperature - 1) > 0.05
    hard_loss(temperature, 0.9)(case)


def forgets(*remembered: bool) -> Expectation:
    """Whether the optimiser has a state before each step."""

    def check(case: "Case") -> None:
        assert [step.remembers > 0 for step in case.seen("evaluate").steps] == list(remembered)

    return check


def stored_batches(case: "Case") -> list[int]:
    """Which of the stored batches each step had, by what it saw."""
    seen = [step.look.x.numpy().tobytes() for step in case.seen("evaluate").steps]
    return [list(dict.fromkeys(seen)).index(x) for x in seen]


def each_once(case: "Case", size: int) -> list[bool]:
    """Whether each part of `size` steps has distinct batches."""
    ids = stored_batches(case)
    return [len(set(ids[i : i + size])) == size for i in range(0, len(ids), size)]


def drawn_anew_in_epochs(case: "Case") -> None:
    """An epoch's two batches are distinct, two epochs do not always have all four. A permutation's always do."""
    assert all(each_once(case.was, 4))
    assert all(each_once(case, 2))
    assert not all(each_once(case, 4))


def drawn_with_replacement(case: "Case") -> None:
    assert not all(each_once(case, 2))


def used_batches(count: int) -> Expectation:
    """How many stored batches a training has."""

    def check(case: "Case") -> None:
        assert len(set(stored_batches(case))) == count

    return check


def half_precision(case: "Case") -> None:
    assert case.beginning(1).steps[0].look.autocast == torch.bfloat16


def scaled_half_precision(case: "Case") -> None:
    """float16 passes, and a loss times GradScaler's 2 ** 16."""
    step = case.beginning(1).steps[0]
    assert step.look.autocast == torch.float16
    assert step.loss == pytest.approx(2**16 * kl()(numbers(step.look.logits), Labelled.of(case)), rel=1e-3)


def held_out(count: int) -> Expectation:
    """So many images of each class are looked at and never trained on."""

    def check(case: "Case") -> None:
        seen = case.seen("evaluate")
        looks = [look for look in seen.tested() if len(look.x) < 15]
        kept = set(marks(fed(looks)))
        assert {len(look.x) for look in looks} == {3 * count}
        assert len(kept) == 3 * count
        shown = {m for look in seen.trained() for m in marks(grey(look.x))}
        assert shown
        assert not shown & kept

    return check


def threads(count: int, *rules: str) -> Expectation:
    """What jobs set torch's threads to."""

    def check(case: "Case") -> None:
        for rule in rules:
            assert set(case.seen(rule).threads) == {count}, rule

    return check


# Expectations: jobs and places


def blocks(**wanted: int) -> Expectation:
    """Units that a job does."""

    def check(case: "Case") -> None:
        assert wanted.items() <= case.chain.blocks().items()

    return check


def loader_workers(count: int) -> Expectation:
    def check(case: "Case") -> None:
        assert case.seen("squeeze").workers
        assert set(case.seen("squeeze").workers) == {count}

    return check


def below(rule: str, folder: str) -> Expectation:
    """Where a rule's results are."""

    def check(case: "Case") -> None:
        case.files(rule)
        assert list(_foreign(case, folder).rglob("*.json"))

    return check


def paced(views: int) -> Expectation:
    """Label views of a job where a view takes ten seconds."""

    def check(case: "Case") -> None:
        case.files("relabel")
        for timing in case.chain.store().glob("timings/*.json"):
            record = json.loads(timing.read_text())
            timing.write_text(json.dumps(record | {"seconds": 10 * record["work"] / 6}))  # a view has six crops
        shutil.rmtree(case.chain.store() / "done")  # what has a receipt stays as it was cut
        case.lab.chains.clear()
        assert case.chain.blocks()["views"] == views

    return check


# The table


@dataclass(frozen=True)
class Row:
    """An option, its second value, and what must be seen of it.

    `beside`: other settings that it needs, also before it is changed; `along`: settings that change with it.
    `alone`: it needs results of its own, because it is not part of the keys.
    """

    option: str
    value: Any
    expected: Expectation
    beside: dict[str, Any] = field(default_factory=dict)
    along: dict[str, Any] = field(default_factory=dict)
    alone: bool = False

    @property
    def name(self) -> str:
        value = self.value if isinstance(self.value, str | int | float | list) else "..."
        return f"{self.option}={value}".replace(" ", "").replace("/", ":")


def both(*expectations: Expectation) -> Expectation:
    """All of them."""

    def check(case: "Case") -> None:
        for expectation in expectations:
            expectation(case)

    return check


def images(method: str, **settings: Any) -> dict[str, Any]:
    return {"images.x": {"method": method, **settings}}


def recover(**settings: Any) -> dict[str, Any]:
    """SRe2L++ from whole rulers, all three at once, two iterations without crop and shift."""
    quiet = {"budgets": [2], "crop": False, "roll": [0, 0]}
    return images("sre2l", init="patches", batch=3, mipc=12, num_crop=1, crop_scale=[1, 1], recover=quiet | settings)


def training(**settings: Any) -> dict[str, Any]:
    return {"evaluations.e": {"order": "soft", **settings}}


# settings that rows need
WHOLE = {"datasets.waves.augment": {"scale": [1, 1], "ratio": [1, 1], "flip": 0.0}, "labels.mix": "none"}
SQUARE = {"datasets.waves.augment.ratio": [1, 1], "teachers.t.recipe.crop": "resized", "labels.mix": "none"}
QUARTER = {"datasets.waves.augment.scale": [0.25, 0.25], "teachers.t.recipe.crop": "resized", "labels.mix": "none"}
RESIZED = {"datasets.waves.resize": 16, "teachers.t.recipe.crop": "resized"}
SECOND = {"teachers.u": {"arch": "small/resnet10-w8", "recipe": {"epochs": 1, "batch": 6, "lr": 0.03, "padding": 0}}}
RDED = images("rded", mipc=12, num_crop=2)
RDED_WHOLE = images("rded", mipc=12, num_crop=1, crop_scale=[1, 1])
PATCHES = images("patches", mipc=12, num_crop=1, crop_scale=[1, 1])
LPLD = images("lpld", batch=2, recover={"budgets": [2], "roll": [0, 4]})
FADRM = images("fadrm", batch=3, mipc=12, num_crop=1, recover={"budgets": [1, 1], "crop": False, "roll": [0, 0]})
TORCHVISION = {"datasets.waves.classes": 1000, "teachers.t.arch": "torchvision/mobilenet_v2"}
CIFAR = {
    "datasets.waves": {
        "source": "torchvision",
        "variant": "CIFAR100",
        "root": "$HALD_DATA",
        "size": 16,
        "classes": 3,
        "mean": [0.5] * 3,
        "std": [0.25] * 3,
    }
}
HARD = training(order="hard")
IN_TURN = training(order="soft-hard-soft", epochs=5, hard_epochs=1)
SURE = training(loss={"name": "lpqld", "floor": 0.1}, epochs=5, lr=0.02)
ANNEALED = {"name": "lpqld", "every": 1}
WIDE = {"students.s.arch": "small/resnet10-w8"}
FOUR = {"labels.batch": 3, "tables.t.slc": [4]}  # four stored batches, two in an epoch
HALF_VIEW = {"labels.batch": 3, "tables.t.slc": [3], "epochs": 4}
EIGHT = {"tables.t.slc": [16], "tables.t.seeds": 4}


def adaptive(**settings: Any) -> dict[str, Any]:
    """Stages that are left as soon as they may be: after `window` + 1 epochs."""
    soon = {"window": 1, "shortest": 1, "accuracy": 1000, "entropy": 1000}
    return training(order={"name": "adaptive"} | soon | settings, epochs=9) | {"labels.mix": "none"}


TRAINED = ("squeeze", "relabel", "evaluate")
MOVED = [0.3, 0.4, 0.5]
WIDER = [0.2, 0.3, 0.4]

ROWS = [
    # places and jobs
    Row("results", "$HALD_DATA/results", below("squeeze", "results/teachers")),
    Row("stores", "$HALD_DATA/labels", below("relabel", "labels"), alone=True),
    Row("experiments", ["more"], course("sssssss")),
    Row("override.case", {"epochs": 3}, course("sss")),
    Row("jobs.target_minutes", 0.5, paced(3), {"jobs.views_per_job": None, "tables.t.slc": [40]}, alone=True),
    Row("jobs.views_per_job", 3, blocks(views=3), EIGHT, alone=True),
    Row("jobs.seeds_per_job", 2, blocks(seeds=2), EIGHT, alone=True),
    Row("jobs.units_per_job", 2, blocks(units=2), RDED, alone=True),
    Row("jobs.workers", 1, loader_workers(1), RESIZED, alone=True),
    # datasets
    Row(
        "datasets.waves.source",
        "tiny_imagenet",
        both(measured_on(2), trained_on(3)),
        {"datasets.waves.root": "$HALD_DATA/tiny"},
    ),
    Row("datasets.waves.size", 12, sides(12), RESIZED),
    Row("datasets.waves.classes", 2, columns(2), {"datasets.waves.subset": ["class0", "class2"]}),
    Row(
        "datasets.waves.mean",
        MOVED,
        normalised(MOVED, STD, "squeeze", "rank", "synthesize", "relabel", "evaluate"),
        {**WHOLE, **RDED_WHOLE},
    ),
    Row(
        "datasets.waves.std",
        WIDER,
        normalised(MEAN, WIDER, "squeeze", "rank", "synthesize", "relabel", "evaluate"),
        {**WHOLE, **RDED_WHOLE},
    ),
    Row("datasets.waves.root", "$HALD_DATA/other", both(measured_on(2), trained_on(3)), alone=True),
    Row("datasets.waves.variant", "CIFAR10", asks_torchvision("CIFAR10", download=False), CIFAR),
    Row("datasets.waves.download", True, asks_torchvision("CIFAR100", download=True), CIFAR, alone=True),
    Row("datasets.waves.train", "learn", trained_on(3)),
    Row("datasets.waves.test", "val", measured_on(2)),
    Row("datasets.waves.subset", ["class0", "class2"], measured_on(1, (0, 2)), {"datasets.waves.classes": 2}),
    Row("datasets.waves.subset", 2, measured_on(1, (0, 1)), {"datasets.waves.classes": 2}),
    Row("datasets.waves.resize", 20, resized_to(20), {"teachers.t.recipe.crop": "resized"}),
    Row(
        "datasets.waves.published_as",
        "imagewoof",
        optimiser("evaluate", "AdamW", lr=0.0005),
        {"students.s.published_as": "resnet18"},
    ),
    Row("datasets.waves.floor", 100, refused("floor"), alone=True),
    Row("datasets.waves.augment.scale", [0.25, 0.25], cropped(8, 8, *TRAINED), {**SQUARE, **training(order="soft")}),
    Row("datasets.waves.augment.scale", [0.25, 0.25], cropped(8, 8, "evaluate"), {**SQUARE, **HARD}),
    Row("datasets.waves.augment.scale", [0.25, 0.25], cropped(8, 8, "statistics"), {**SQUARE, **LPLD}),
    Row("datasets.waves.augment.ratio", [2, 2], cropped(6, 11, *TRAINED), QUARTER),
    Row("datasets.waves.augment.ratio", [2, 2], cropped(6, 11, "evaluate"), {**QUARTER, **HARD}),
    Row("datasets.waves.augment.ratio", [2, 2], cropped(6, 11, "statistics"), {**QUARTER, **LPLD}),
    Row("datasets.waves.augment.flip", 1.0, cropped(16, -16, *TRAINED), {**WHOLE}),
    Row("datasets.waves.augment.flip", 1.0, cropped(16, -16, "evaluate"), {**WHOLE, **HARD}),
    Row(
        "datasets.waves.augment.flip", 1.0, cropped(16, -16, "squeeze"), {**WHOLE, "teachers.t.recipe.crop": "resized"}
    ),
    Row("datasets.waves.augment.flip", 1.0, cropped(16, -16, "statistics"), {**WHOLE, **LPLD}),
    # the experiment
    Row(
        "dataset",
        "other",
        both(measured_on(2), trained_on(3)),
        {"datasets.other": BASE["datasets"]["waves"] | {"root": "$HALD_DATA/other"}},
    ),
    Row("teacher", "u", stem("relabel", 8), SECOND),
    Row("epochs", 3, rates("evaluate", *(0.0005 * (1 + math.cos(math.pi * e / 6)) for e in range(3)))),
    Row("beta2", 0.9, optimiser("evaluate", "AdamW", betas=(0.9, 0.9))),
    Row("beta2", "scaled", optimiser("evaluate", "AdamW", betas=(0.9, 0.925)), {"epochs": 500}),
    Row("beta2", "scaled", optimiser("evaluate", "AdamW", betas=(0.9, 0.9)), {"epochs": 300}),
    Row("measure_every", 2, curve(2, 4, 5), {"epochs": 5}),
    Row("slc_rounding", "floor", used_batches(2), HALF_VIEW),
    Row("threads", 3, threads(3, "squeeze", "rank", "synthesize", "relabel", "evaluate"), RDED),
    Row("threads", 3, threads(3, "statistics", "recover"), LPLD),
    # teachers
    Row("teachers.t.arch", "small/resnet10-w8", stem("squeeze", 8)),
    Row(
        "teachers.t.source",
        "path",
        weights_of("a.safetensors"),
        along={"teachers.t.path": "$HALD_DATA/a.safetensors"},
    ),
    Row(
        "teachers.t.source",
        "torchvision",
        fetched("mobilenet_v2", "IMAGENET1K_V1"),
        TORCHVISION,
        alone=True,
    ),
    Row(
        "teachers.t.weights",
        "IMAGENET1K_V2",
        fetched("mobilenet_v2", "IMAGENET1K_V2"),
        {**TORCHVISION, "teachers.t.source": "torchvision"},
        alone=True,
    ),
    Row(
        "teachers.t.path",
        "$HALD_DATA/b.safetensors",
        weights_of("b.safetensors"),
        {"teachers.t.source": "path", "teachers.t.path": "$HALD_DATA/a.safetensors"},
    ),
    Row(
        "teachers.t.mean",
        MOVED,
        both(normalised(MOVED, STD, "squeeze", "rank", "synthesize", "relabel"), normalised(MEAN, STD, "evaluate")),
        {**WHOLE, **RDED_WHOLE},
    ),
    Row("teachers.t.mean", MOVED, normalised(MOVED, STD, "recover"), recover()),
    Row("teachers.t.mean", MOVED, normalised(MOVED, STD, "statistics"), {**WHOLE, **LPLD}),
    Row(
        "teachers.t.std",
        WIDER,
        both(normalised(MEAN, WIDER, "squeeze", "rank", "synthesize", "relabel"), normalised(MEAN, STD, "evaluate")),
        {**WHOLE, **RDED_WHOLE},
    ),
    Row("teachers.t.std", WIDER, normalised(MEAN, WIDER, "recover"), recover()),
    Row("teachers.t.std", WIDER, normalised(MEAN, WIDER, "statistics"), {**WHOLE, **LPLD}),
    Row("teachers.t.seed", 5, seeded(5)),
    Row("teachers.t.recipe.epochs", 2, rates("squeeze", *[0.03] * 6, *[0.015] * 6)),
    Row("teachers.t.recipe.batch", 9, batches("squeeze", 9, 9, 9, 9)),
    Row("teachers.t.recipe.optimizer", "adam", optimiser("squeeze", "Adam", lr=0.03, weight_decay=0.0005)),
    Row("teachers.t.recipe.optimizer", "adamw", optimiser("squeeze", "AdamW", lr=0.03, weight_decay=0.0005)),
    Row("teachers.t.recipe.lr", 0.04, both(rates("squeeze", *[0.04] * 6), optimiser("squeeze", "SGD", lr=0.04))),
    Row("teachers.t.recipe.momentum", 0.8, optimiser("squeeze", "SGD", momentum=0.8, weight_decay=0.0005)),
    Row("teachers.t.recipe.weight_decay", 0.003, optimiser("squeeze", "SGD", momentum=0.9, weight_decay=0.003)),
    Row(
        "teachers.t.recipe.weight_decay",
        0.003,
        optimiser("squeeze", "AdamW", weight_decay=0.003),
        {"teachers.t.recipe.optimizer": "adamw"},
    ),
    Row(
        "teachers.t.recipe.warmup",
        2,
        rates("squeeze", *[0.0003] * 6, *[0.01515] * 6, *[0.03] * 6, *[0.015] * 6),
        {"teachers.t.recipe.epochs": 4},
    ),
    Row(
        "teachers.t.recipe.crop",
        "resized",
        cropped(8, 8, "squeeze"),
        {"datasets.waves.augment": {"scale": [0.25, 0.25], "ratio": [1, 1], "flip": 0.0}},
    ),
    Row("teachers.t.recipe.padding", 3, borders(3)),
    # images
    Row(
        "images.x.method",
        "rded",
        both(cut_images, looked_at(12, 2)),
        {"images.x": {"method": "real"}},
        along={"images.x.num_crop": 2},
    ),
    Row(
        "images.x.preset",
        "rded/imagenet1k",
        both(mosaics(2), batches("rank", 60, 60, 60)),
        {"images.x": {"method": "rded"}},
    ),
    Row("images.x.teacher", "u", both(stem("rank", 8), stem("relabel", 4)), {**SECOND, **RDED}),
    Row("images.x.teachers", ["t", "u"], stem("recover", 4, 8), {**SECOND, **recover()}),
    Row(
        "images.x.path",
        "$HALD_DATA/waves/val",
        both(chosen_from(2, 5), whole_images),
        images("external", path="$HALD_DATA/waves/learn", bn_mode="running"),
    ),
    Row("images.x.mipc", 4, looked_at(4, 2), RDED),
    Row("images.x.num_crop", 3, looked_at(12, 3), RDED),
    Row("images.x.factor", 2, mosaics(2), RDED),
    Row("images.x.crop_scale", [0.25, 0.25], cropped(8, 8, "rank"), RDED),
    Row("images.x.difficulty", "hard", of_highest_loss, PATCHES),
    Row("images.x.init", "patches", starts_from_patches, images(**recover()["images.x"] | {"init": "gaussian"})),
    Row("images.x.batch", 2, batches("recover", *[2, 2, 1, 1] * 2), recover()),
    Row("images.x.alpha", 0.8, blended(0.8), FADRM),
    Row("images.x.bn_stats", "ema0.1", objective(targets=moving_average), {**LPLD, "images.x.stats_batch": 10}),
    Row("images.x.stats_batch", 10, batches("statistics", 10, 10, 10, 6), LPLD),
    Row("images.x.bn_mode", "batch", normed_by_batch),
    Row("images.x.codec", "i16", stored_as("int16")),
    Row("images.x.top_k", 2, stored_as("float16", 2), images("real", codec="topk", top_k=3)),
    Row("images.x.seed", 3, other_images),
    Row("images.x.seed", 3, other_images, images(**recover()["images.x"] | {"init": "gaussian"})),
    Row("images.x.recover.lr", 0.1, rates("recover", *[0.1, 0.05] * 2), recover()),
    Row("images.x.recover.budgets", [3], rates("recover", *[0.25, 0.1875, 0.0625] * 2), recover()),
    Row("images.x.recover.sizes", [12, 16], stage_sides(12, 16, 12, 16), FADRM),
    Row("images.x.recover.r_bn", 0.5, objective(r_bn=0.5), recover()),
    Row("images.x.recover.first_bn", 3.0, objective(first=3), recover()),
    Row("images.x.recover.tv", 0.02, objective(tv=0.02), recover()),
    Row("images.x.recover.l2", 0.03, objective(l2=0.03), recover()),
    Row("images.x.recover.crop", False, views(moved(0)), recover(crop=True, scale=[0.25, 0.25])),
    Row("images.x.recover.scale", [0.25, 0.25], cropped(8, 8, "recover"), recover(crop=True, flip=0, ratio=[1, 1])),
    Row("images.x.recover.ratio", [2, 2], cropped(6, 11, "recover"), recover(crop=True, flip=0, scale=[0.25, 0.25])),
    Row("images.x.recover.flip", 1.0, cropped(16, -16, "recover"), recover(crop=True, scale=[1, 1], ratio=[1, 1])),
    Row("images.x.recover.roll", [3, 3], views(moved(3)), recover()),
    Row("images.x.recover.per_image", True, views(moved_one_by_one), recover(roll=[0, 15])),
    Row("images.x.recover.amp", True, mixed_on_gpu, recover()),
    Row("images.x.recover.compile", "on", compiled("recover", dynamic=False), recover()),
    # labels
    Row("labels.teachers", ["t", "u"], summed(0.5, 0.5), SECOND),
    Row("labels.weights", [0.8, 0.3], summed(0.8, 0.3), {**SECOND, "labels.teachers": ["t", "u"]}),
    Row("labels.batch", 4, label_batches(4)),
    Row("labels.mix", "mixup", blends),
    Row("labels.mix_alpha", 0.3, shares(0.3)),
    Row("labels.codec", "u4", stored_as("uint8", largest=15)),
    Row("labels.top_k", 2, stored_as("float16", 2), {"labels.codec": "topk", "labels.top_k": 3}),
    Row("labels.seed", 7, other_views),
    # students
    Row("students.s.arch", "small/resnet10-w8", stem("evaluate", 8)),
    Row("students.s.lr", 0.004, rates("evaluate", 0.004, 0.002 * (1 + math.cos(math.pi / 4)))),
    Row(
        "students.s.published_as",
        "resnet18",
        optimiser("evaluate", "AdamW", lr=0.0005),
        {"datasets.waves.published_as": "cifar100"},
    ),
    # evaluations: stages
    Row("evaluations.e.order", "hard", course("hh")),
    Row("evaluations.e.order", "hard-soft-hard", course("hsssh"), along={"evaluations.e.hard_epochs": 2, "epochs": 5}),
    Row("evaluations.e.epochs", 3, rates("evaluate", *(0.0005 * (1 + math.cos(math.pi * e / 6)) for e in range(3)))),
    Row("evaluations.e.hard_epochs", 1, course("sssh"), training(order="soft-hard", epochs=4)),
    Row("evaluations.e.hard_epochs", {1: 3, 2: 1, 3: 2}, course("sssh"), training(order="soft-hard", epochs=4)),
    Row("evaluations.e.label_uses", 2, course("shhhs"), training(order="soft-hard-soft", epochs=5)),
    Row("evaluations.e.first_epochs", 1, course("shsss"), IN_TURN),
    Row("evaluations.e.last_epochs", 1, course("ssshs"), IN_TURN),
    Row("evaluations.e.order.every", 2, course("sshhs"), training(order={"name": "alternating"}, epochs=5)),
    Row("evaluations.e.order.first", "hard", course("hshsh"), training(order={"name": "alternating"}, epochs=5)),
    Row("evaluations.e.order.window", 2, course("ssshhhsss"), adaptive()),
    Row("evaluations.e.order.accuracy", -1000, course("ssssssshs"), adaptive()),
    Row("evaluations.e.order.entropy", 1e-9, course("sshhhhhhs"), adaptive()),
    Row("evaluations.e.order.shortest", 3, course("ssshhhsss"), adaptive()),
    Row("evaluations.e.order.held_out", 2, held_out(2), adaptive() | {"tables.t.ipc": [3], "tables.t.slc": [6]}),
    Row("evaluations.e.order.divergence", 1000.0, course("sshhsssss"), adaptive(accuracy=-1000)),
    # evaluations: optimiser
    Row("evaluations.e.lr", 0.004, rates("evaluate", 0.004, 0.002 * (1 + math.cos(math.pi / 4)))),
    Row(
        "evaluations.e.lr", 0.004, rates("evaluate", 0.004, 0.002 * (1 + math.cos(math.pi / 4))), {"students.s.lr": 0.1}
    ),
    Row("evaluations.e.eta", 1, rates("evaluate", 0.001, 0.0005)),
    Row("evaluations.e.weight_decay", 0.07, decay(0.07)),
    Row("evaluations.e.beta2", 0.95, optimiser("evaluate", "AdamW", betas=(0.9, 0.95)), {"beta2": 0.98}),
    Row("evaluations.e.handover", "reset", forgets(False, True, False, False, True), IN_TURN),
    # evaluations: losses
    Row("evaluations.e.loss", "gift", losses(gift())),
    Row("evaluations.e.loss", "joint", losses(joint())),
    Row("evaluations.e.loss", "lpqld", annealed(20, 20)),
    Row("evaluations.e.temperature", 3.0, losses(kl(3))),
    Row("evaluations.e.temperature", 0.5, annealed_and_calibrated(0.5), SURE),
    Row("evaluations.e.kd_scale", "T2", losses(kl(scale=400))),
    Row("evaluations.e.loss.weight", 0.3, losses(joint(0.3)), training(loss={"name": "joint"})),
    Row("evaluations.e.loss.weight", 0.6, losses(gift(0.6)), training(loss={"name": "gift"})),
    Row("evaluations.e.loss.label", "mixed", losses(gift(mixed=True)), training(loss={"name": "gift"})),
    Row("evaluations.e.loss.factor", 0.5, annealed(10, 5, 2.5), training(loss=ANNEALED, epochs=3)),
    Row("evaluations.e.loss.every", 2, annealed(20, 14, 14), training(loss={"name": "lpqld"}, epochs=3)),
    Row("evaluations.e.loss.floor", 12.0, annealed(14, 12, 12), training(loss=ANNEALED, epochs=3)),
    Row("evaluations.e.smoothing", 0.5, hard_loss(smoothing=0.5), HARD),
    Row("evaluations.e.smoothing", 0.5, losses(joint(smoothing=0.5)), training(loss="joint")),
    Row("evaluations.e.hard_temperature", 4.0, hard_loss(4), HARD),
    Row("evaluations.e.hard_temperature", "matched", hard_temperature_matched, training(order="hard", smoothing=0.9)),
    Row("evaluations.e.top_k", 2, losses(kl(kept=2))),
    # evaluations: labels
    Row("evaluations.e.sampling", "epoch", drawn_anew_in_epochs, {**FOUR, "epochs": 16}),
    Row("evaluations.e.sampling", "replacement", drawn_with_replacement, {**FOUR, "epochs": 16}),
    Row("evaluations.e.slc_rounding", "floor", used_batches(2), HALF_VIEW),
    Row("evaluations.e.measure_every", 2, curve(2, 4, 5), {"epochs": 5}),
    # evaluations: arithmetic
    Row("evaluations.e.precision", "bf16", half_precision),
    Row("evaluations.e.precision", "fp16", scaled_half_precision),
    Row("evaluations.e.compile", "on", compiled("evaluate", mode="default"), WIDE),
    Row("evaluations.e.compile", "graphs", compiled("evaluate", mode="reduce-overhead"), WIDE),
]

# Options that move no key, because no result depends on them.
UNMOVED = {
    "results": "a place",
    "stores": "a place",
    "datasets.waves.root": "a place",
    "datasets.waves.download": "how data comes there",
    "datasets.waves.floor": "a guard: nothing is made otherwise, but less is",
    "jobs.target_minutes": "how work is cut",
    "jobs.views_per_job": "how work is cut",
    "jobs.seeds_per_job": "how work is cut",
    "jobs.units_per_job": "how work is cut",
    "jobs.workers": "who decodes",
}

# Parts of an experiment that say what is shown of all this: other tests are about them.
SHOWN = ("tables", "analyses", "figures")
