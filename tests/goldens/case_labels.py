"""Views, labels and codecs."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import reference as ref
import zarr
from adapter import decode, encode, half_step
from bench import DATASET, MEAN, SIZE, STD, TEACHERS, Bench, Check, case, cases, drawn_view, fed, load_teacher

VIEWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # what the experiment says: labels, augment
    "cutmix": ({}, {"flip": 0.584}),  # a draw is 0.5865
    "mirrored": ({"seed": 9}, {"flip": 1.0, "scale": [0.05, 0.1]}),
    "not_mirrored": ({"mix_alpha": 0.4}, {"flip": 0.0, "ratio": [0.2, 5.0]}),
    "mixup": ({"mix": "mixup", "mix_alpha": 0.8}, {"scale": [1.0, 1.0]}),
    "unmixed": ({"mix": "none"}, {}),
}


@cases(("relabel", "codec.f16"), **VIEWS)
def views(bench: Bench, variant: tuple[dict[str, Any], dict[str, Any]]) -> Iterator[Check]:
    """The geometry of two views of six images in batches of four and two, and the labels of every crop."""
    labels, augment = variant
    chain = bench.chain(
        slc=4,
        labels={"batch": 4, "codec": "f16"} | labels,
        dataset={"augment": DATASET["augment"] | augment},
        teachers={"sgd": {"arch": "small/resnet10-w4"} | TEACHERS["adamw"]},
    )
    store = zarr.open_group(chain.store(), mode="r")
    images = store["images"][:]
    model = load_teacher(chain.store() / "teachers/0")
    for number in range(2):
        view = drawn_view(number, len(images), labels, augment)
        for name in ("image", "box", "flip", "partner", "lam", "cut"):
            off = 1e-12 if name == "lam" else 0
            yield Check(f"{name} of view {number}", store[name][number], getattr(view, name), off)
        z = ref.relabel(images, view, 4, SIZE, "running", [(model, 1.0, (MEAN, STD))])
        yield Check(f"labels of view {number}", store["q"][number], z - z.mean(1, keepdim=True), 2e-3)


@cases(("relabel", "codec.i16"), running="running", batch="batch")
def two_teachers(bench: Bench, bn: str) -> Iterator[Check]:
    """Two teachers, each fed with statistics of its own, weighted 7 and 4."""
    chain = bench.chain(
        images={"method": "real", "bn_mode": bn},
        labels={"batch": 4, "codec": "i16", "teachers": ["sgd", "adam"], "weights": [7.0, 4.0]},
    )
    store = zarr.open_group(chain.store(), mode="r")
    images = store["images"][:]
    teachers = [(bench.teacher("sgd"), 7.0, fed("sgd")), (bench.teacher("adam"), 4.0, fed("adam"))]
    z = ref.relabel(images, drawn_view(0, len(images), {}, {}), 4, SIZE, bn, teachers)
    middle = (z.amax(1, keepdim=True) + z.amin(1, keepdim=True)) / 2
    yield Check("labels in steps of 1/80", store["q"][0], (z - middle) * 80, 0.51)


@cases({name: ("relabel", f"codec.{name}") for name in ("u8", "u4", "u2")}, u8=208, u4=15, u2=3)
def steps(bench: Bench, levels: int) -> Iterator[Check]:
    """Codecs of few steps between a label's smallest and largest logit."""
    name = {208: "u8", 15: "u4", 3: "u2"}[levels]
    store = zarr.open_group(bench.chain(labels={"batch": 4, "codec": name}).store(), mode="r")
    images = store["images"][:]
    z = ref.relabel(
        images, drawn_view(0, len(images), {}, {}), 4, SIZE, "running", [(bench.teacher("sgd"), 1.0, fed("sgd"))]
    )
    low, high = z.amin(1, keepdim=True), z.amax(1, keepdim=True)
    yield Check("step", store["scale"][0], ((high - low) / levels)[:, 0], 1e-6)
    yield Check("steps from the smallest", store["q"][0], (z - low) / (high - low) * levels, 0.51)
    yield Check("largest step", int(store["q"][0].max()), levels, 0)


@case("relabel", "codec.topk")
def top_k(bench: Bench) -> Iterator[Check]:
    """Two of three logits, the largest first, and their classes."""
    store = zarr.open_group(bench.chain(labels={"batch": 4, "codec": "topk", "top_k": 2}).store(), mode="r")
    images = store["images"][:]
    z = ref.relabel(
        images, drawn_view(0, len(images), {}, {}), 4, SIZE, "running", [(bench.teacher("sgd"), 1.0, fed("sgd"))]
    )
    best = z.sort(dim=1, descending=True)
    yield Check("classes", store["index"][0], best.indices[:, :2], 0)
    yield Check("logits", store["q"][0], (best.values - best.values[:, :1])[:, :2], 1e-3)


CODECS = ("u8", "u4", "u2", "i16", "f16", "topk")


@cases({name: (f"codec.{name}",) for name in CODECS}, **{name: name for name in CODECS})
def codec(bench: Bench, name: str) -> Iterator[Check]:
    """Bytes of two labels by hand, and the logits that are read from them."""
    logits = np.array([[1.0, 1.0 + 15 / 4, 1.0 + 5 / 4], [-3.0, 0.0, 12.0]], dtype=np.float32)
    arrays = encode(name, logits, 2)
    by_hand, read = BYTES[name]
    yield Check("arrays", sorted(arrays), sorted(by_hand), 0)
    for part, (dtype, values) in by_hand.items():
        yield Check(f"type of {part}", str(arrays[part].dtype), dtype, 0)
        yield Check(f"bytes of {part}", arrays[part].tobytes(), np.array(values, dtype=dtype).tobytes(), 0)
    yield Check("read", decode(name, arrays, 3), np.array(read, dtype=np.float32), 1e-6)
    yield Check("half a step", half_step(name, arrays)[:, 0], np.array(HALF_STEPS[name], dtype=np.float32), 1e-6)


INFINITE = np.inf
# largest error of both labels; of half precision, 11 binary digits of the largest logit
HALF_STEPS = {
    "u8": [3.75 / 416, 15 / 416],
    "u4": [0.125, 0.5],
    "u2": [0.625, 2.5],
    "i16": [1 / 160, 1 / 160],
    "f16": [25 / 12 / 2048, 9 / 2048],
    "topk": [2.5 / 2048, 12 / 2048],
}
# of every array: its type and values; then the logits as they are read
BYTES: dict[str, tuple[dict[str, tuple[str, Any]], Any]] = {
    "u8": (
        {"q": ("uint8", [[0, 208, 69], [0, 42, 208]]), "scale": ("float32", [3.75 / 208, 15 / 208])},
        [[0, 3.75, 69 * 3.75 / 208], [0, 42 * 15 / 208, 15]],  # 1.25 / 3.75 of 208 is 69.33, 3 / 15 of it 41.6
    ),
    "u4": (
        {"q": ("uint8", [[0, 15, 5], [0, 3, 15]]), "scale": ("float32", [0.25, 1.0])},
        [[0, 3.75, 1.25], [0, 3, 15]],
    ),
    "u2": (
        {"q": ("uint8", [[0, 3, 1], [0, 1, 3]]), "scale": ("float32", [1.25, 5.0])},
        [[0, 3.75, 1.25], [0, 5, 15]],
    ),
    "i16": (
        {"q": ("int16", [[-150, 150, -50], [-600, -360, 600]])},  # eightieths around the middle
        [[-150 / 80, 150 / 80, -50 / 80], [-7.5, -4.5, 7.5]],
    ),
    "f16": (
        {"q": ("float16", [[-5 / 3, 25 / 12, -5 / 12], [-6, -3, 9]])},  # around the mean
        [[np.float16(x) for x in (-5 / 3, 25 / 12, -5 / 12)], [-6, -3, 9]],
    ),
    "topk": (
        {"q": ("float16", [[0, -2.5], [0, -12]]), "index": ("uint16", [[1, 2], [2, 1]])},
        [[-INFINITE, 0, -2.5], [-INFINITE, -12, 0]],
    ),
}
