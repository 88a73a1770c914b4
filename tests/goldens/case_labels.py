"""Views, labels and codecs."""

from collections.abc import Iterator
from typing import Any

import reference as ref
import zarr
from bench import DATASET, MEAN, SIZE, STD, TEACHERS, Bench, Check, case, cases, drawn_view, fed, load_teacher

VIEWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # what the experiment says: labels, augment
    "cutmix": ({}, {}),
    "mirrored": ({"seed": 9}, {"flip": 1.0, "scale": [0.05, 0.1]}),
    "not_mirrored": ({"mix_alpha": 0.4}, {"flip": 0.0, "ratio": [0.2, 5.0]}),
    "mixup": ({"mix": "mixup", "mix_alpha": 0.8}, {"scale": [1.0, 1.0]}),
    "unmixed": ({"mix": "none"}, {}),
}


@cases("relabel", **VIEWS)
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


@cases("relabel", running="running", batch="batch")
def two_teachers(bench: Bench, bn: str) -> Iterator[Check]:
    """Two teachers, each fed with statistics of its own, weighted 0.7 and 0.4."""
    chain = bench.chain(
        images={"method": "real", "bn_mode": bn},
        labels={"batch": 4, "codec": "i16", "teachers": ["sgd", "adam"], "weights": [0.7, 0.4]},
    )
    store = zarr.open_group(chain.store(), mode="r")
    images = store["images"][:]
    teachers = [(bench.teacher("sgd"), 0.7, fed("sgd")), (bench.teacher("adam"), 0.4, fed("adam"))]
    z = ref.relabel(images, drawn_view(0, len(images), {}, {}), 4, SIZE, bn, teachers)
    middle = (z.amax(1, keepdim=True) + z.amin(1, keepdim=True)) / 2
    yield Check("labels in steps of 1/80", store["q"][0], (z - middle) * 80, 0.51)


@cases("relabel", u8=208, u4=15, u2=3)
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


@case("relabel")
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
