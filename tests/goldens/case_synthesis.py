"""Class statistics, rankings, sets of real crops, five steps of each optimiser."""

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import reference as ref
import torch
import zarr
from bench import CLASSES, SIZE, TEACHERS, TRAIN, Bench, Check, case, cases, fed, load_teacher
from PIL import Image
from safetensors.torch import load_file
from torchvision.transforms import functional as tv

from chain import formula


@cases(("statistics",), exact="exact", ema="ema0.1")
def statistics(bench: Bench, kind: str) -> Iterator[Check]:
    """LPLD's class statistics over batches of 10 crops."""
    chain = bench.chain(images={"method": "lpld", "bn_stats": kind, "stats_batch": 10, "seed": 3, "recover": RECOVER})
    folder = chain.only("statistics")
    found = load_file(folder / "statistics.safetensors")
    expected = ref.class_statistics(bench.data(), bench.teacher("sgd"), 10, kind, 3, fed("sgd"))
    for layer, (mean, var) in enumerate(expected):
        yield Check(f"mean of layer {layer}", found[f"{layer}.mean"], mean, 2e-5)
        yield Check(f"variance of layer {layer}", found[f"{layer}.var"], var, 2e-5)


RECOVER: dict[str, Any] = {
    "lr": 0.2,
    "budgets": [5],
    "sizes": [SIZE],
    "r_bn": 0.3,
    "first_bn": 4.0,
    "crop": True,
    "scale": [0.3, 0.95],
    "ratio": [0.8, 1.3],
    "flip": 0.6,
    "roll": [-2, 3],
    "compile": "off",
}
RANKED = {"mipc": 9, "num_crop": 3, "crop_scale": [0.2, 0.9], "seed": 2}


@cases(("ranking",), one=1, two=2)
def ranking(bench: Bench, factor: int) -> Iterator[Check]:
    """Nine images of a class, three crops each, scored in a canvas."""
    settings = RANKED | {"factor": factor}
    chain = bench.chain(images={"method": "rded"} | settings)
    folder = chain.only("rank")
    for label in range(CLASSES):
        with np.load(folder / f"{label:05d}.npz") as unit:
            expected = ref.rank(bench.data(), bench.teacher("sgd"), label, settings, fed("sgd"))
            yield Check(f"images of class {label}", unit["index"], [index for _, index, _ in expected], 0)
            yield Check(f"boxes of class {label}", unit["box"], [box for _, _, box in expected], 0)
            yield Check(f"losses of class {label}", unit["loss"], [loss for loss, _, _ in expected], 3e-4)


@case("ranking")
def ranking_of_encoded_images(bench: Bench) -> Iterator[Check]:
    """The same for images that are decoded one by one."""
    encoded, data = bench.encoded()
    settings = RANKED | {"factor": 1}
    teacher = {"arch": "small/resnet10-w4"} | TEACHERS["adamw"]
    images = {"method": "rded"} | settings
    chain = bench.chain(images=images, dataset=encoded, teacher="adamw", teachers={"adamw": teacher})
    folder = chain.only("rank")
    model = load_teacher(chain.teacher())
    for label in range(CLASSES):
        with np.load(folder / f"{label:05d}.npz") as unit:
            expected = ref.rank(data, model, label, settings, fed("adamw"))
            yield Check(f"images of class {label}", unit["index"], [index for _, index, _ in expected], 0)
            yield Check(f"boxes of class {label}", unit["box"], [box for _, _, box in expected], 0)
            yield Check(f"losses of class {label}", unit["loss"], [loss for loss, _, _ in expected], 3e-4)


@cases(
    dict.fromkeys(("rded", "rded_mosaic"), ("method.rded",))
    | {f"patches_{difficulty}": ("method.patches",) for difficulty in ("medium", "hard", "easy")},
    rded=({"method": "rded", "factor": 1}, None),
    rded_mosaic=({"method": "rded", "factor": 2}, None),
    patches_medium=({"method": "patches", "factor": 1, "difficulty": "medium"}, "medium"),
    patches_hard=({"method": "patches", "factor": 2, "difficulty": "hard"}, "hard"),
    patches_easy=({"method": "patches", "factor": 1, "difficulty": "easy"}, "easy"),
)
def chosen(bench: Bench, variant: tuple[dict[str, Any], str | None]) -> Iterator[Check]:
    """Sets of real crops: RDED's best ones in mosaics, patches by difficulty."""
    settings, difficulty = RANKED | variant[0], variant[1]
    data, factor = bench.data(), settings["factor"]
    cells = factor**2
    images, losses = [], []
    for label in range(CLASSES):
        ranked = ref.rank(data, bench.teacher("sgd"), label, settings, fed("sgd"))
        ranked = ref.by_difficulty(ranked, difficulty) if difficulty else ranked
        for j in range(2):
            at = range(j * cells, (j + 1) * cells) if difficulty else [k * 2 + j for k in range(cells)]
            images.append(ref.mosaic(data, [ranked[i] for i in at], factor))
            losses.append(sum(ranked[i][0] for i in at) / cells)
    yield from image_set(bench, settings, torch.stack(images), losses)


@case("method.real")
def real(bench: Bench) -> Iterator[Check]:
    """A random subset."""
    data = bench.data()
    rows = [data.members(c)[i] for c in range(CLASSES) for i in ref.order("real", 4, c, TRAIN)[:2]]
    pixels = torch.from_numpy(data.train[rows])
    yield from image_set(bench, {"method": "real", "seed": 4}, pixels, [math.nan] * len(rows))


@case("method.real")
def real_of_encoded_images(bench: Bench) -> Iterator[Check]:
    """Images of 26 x 20 pixels: resized to 18 by the shorter side, then the centre."""
    encoded, data = bench.encoded()
    chain = bench.chain(images={"method": "real", "seed": 4}, dataset=encoded, teacher="adamw")
    rows = [data.members(c)[i] for c in range(CLASSES) for i in ref.order("real", 4, c, TRAIN)[:2]]
    pictures = [np.asarray(tv.center_crop(tv.resize(data.train[row], 18), SIZE)) for row in rows]
    found = zarr.open_group(chain.images(), mode="r")["images"][:]
    yield Check("pixels", found, np.stack(pictures).transpose(0, 3, 1, 2), 0)


# what class folders and files are called, the sides of the images, and how the record calls this
ELSEWHERE: dict[str, tuple[str, str, tuple[int, int], str]] = {
    "named": ("class{0}", "{1:02d}.png", (SIZE, SIZE), "names"),
    "numbered": ("new{0:03d}", "class{0:03d}_id{1}.png", (20, 26), "numbers"),  # 9 comes before 10
    "sorted": ("{0}th", "{1:02d}.png", (20, 26), "sorted"),
}


@cases(("method.external",), **ELSEWHERE)
def external(bench: Bench, variant: tuple[str, str, tuple[int, int], str]) -> Iterator[Check]:
    """The first two of three files of every class; larger ones resized by the shorter side, then the centre."""
    folder, file, (height, width), order = variant
    root, found = bench.folder / f"made-{order}", []
    for label in range(CLASSES):
        (root / folder.format(label)).mkdir(parents=True)
        for number in (9, 10, 11):
            image = Image.fromarray(formula(label, number, max(height, width))[:height, :width])
            image.save(root / folder.format(label) / file.format(label, number))
            found += [image] if number < 11 else []
    pixels = np.stack([np.asarray(tv.center_crop(tv.resize(image, SIZE), SIZE)) for image in found])
    settings = {"method": "external", "path": str(root), "bn_mode": "running"}
    yield from image_set(bench, settings, torch.from_numpy(pixels.transpose(0, 3, 1, 2)), [math.nan] * len(found))
    record = json.loads((bench.chain(images=settings).images() / "image_set.json").read_text())
    yield Check("images resized", record["resized"], 0 if height == SIZE else len(found), 0)
    yield Check("order of classes", record["class_order"] == order, True, 0)


def image_set(
    bench: Bench, settings: dict[str, Any], pixels: torch.Tensor, losses: list[float], resized: bool = True
) -> Iterator[Check]:
    """A set on disk beside what should be in it, and its grades."""
    folder = bench.chain(images=settings).images()
    group = zarr.open_group(folder, mode="r")
    labels = [c for c in range(CLASSES) for _ in range(2)]
    found = group["images"][:]
    # where torchvision's float64 and the pipeline's float32 fall on two sides of half a grey level, they differ by one:
    # often in flat parts of crops that were resized
    differ = np.abs(found.astype(int) - pixels.numpy().astype(int))
    yield Check("mean difference of pixels", differ.mean(), 0, 0.04 if resized else 0.002)
    yield Check("share of pixels that differ by more than one", (differ > 1).mean(), 0, 0.01)
    yield Check("classes", group["labels"][:], labels, 0)
    if not math.isnan(losses[0]):
        yield Check("losses", group["loss"][:], losses, 1e-3 if resized else 1e-4)
    record = json.loads((folder / "image_set.json").read_text())
    if settings["method"] == "rded":
        yield Check("images looked at", record["mipc_used"], [settings["mipc"]] * CLASSES, 0)
    graded = ref.grade(bench.teacher("sgd"), torch.from_numpy(found), labels, fed("sgd"))
    yield Check("classified and diversity", [record["classified"], record["diversity"]], graded, 1e-4)


def gaussian(seed: int, counter: int, n: int) -> torch.Tensor:
    """The noise that an optimisation starts from."""
    noise = ref.generator("recover-start", seed, counter).standard_normal((n, 3, SIZE, SIZE), dtype=np.float32)
    return torch.from_numpy(noise).double()


def patch_starts(bench: Bench, settings: dict[str, Any], labels: list[int], image: int) -> torch.Tensor:
    """The patches of one image index, normalised."""
    found = []
    for label in labels:
        ranked = ref.rank(bench.data(), bench.teacher("sgd"), label, settings, fed("sgd"))
        ranked, cells = ref.by_difficulty(ranked, settings["difficulty"]), settings["factor"] ** 2
        found.append(ref.mosaic(bench.data(), ranked[image * cells : (image + 1) * cells], settings["factor"]))
    return ref.normal(torch.stack(found).double() / 255, *fed("sgd"))


OPTIMISED: dict[str, dict[str, Any]] = {
    "sre2l": {"method": "sre2l", "batch": 2, "seed": 7, "recover": RECOVER},
    "sre2l_terms": {
        "method": "sre2l",
        "batch": 3,
        "seed": 7,
        "recover": RECOVER | {"crop": False, "tv": 0.004, "l2": 0.1},
    },
    "sre2l_per_image": {"method": "sre2l", "batch": 3, "seed": 7, "recover": RECOVER | {"per_image": True}},
    "sre2l_patches": {
        "method": "sre2l",
        "init": "patches",
        "batch": 2,
        "factor": 2,
        "difficulty": "easy",
        "recover": RECOVER,
    },
    "fadrm": {
        "method": "fadrm",
        "batch": 2,
        "alpha": 0.3,
        "factor": 1,
        "difficulty": "medium",
        "recover": RECOVER | {"budgets": [3, 2], "sizes": [12, SIZE]},
    },
    "fadrm_two_teachers": {
        "method": "fadrm",
        "teachers": ["sgd", "adamw"],
        "batch": 3,
        "alpha": 0.6,
        "factor": 1,
        "difficulty": "hard",
        "recover": RECOVER | {"budgets": [3, 2], "sizes": [SIZE, SIZE]},
    },
    "lpld": {"method": "lpld", "batch": 100, "bn_stats": "ema0.1", "stats_batch": 10, "seed": 3, "recover": RECOVER},
    "lpld_parts": {"method": "lpld", "batch": 1, "bn_stats": "exact", "stats_batch": 10, "seed": 3, "recover": RECOVER},
}


@cases({name: (f"method.{own['method']}", "from_units") for name, own in OPTIMISED.items()}, **OPTIMISED)
def optimised(bench: Bench, settings: dict[str, Any]) -> Iterator[Check]:
    """Images after five steps, as optimised units and as the set that is made from them."""
    settings = (RANKED | settings) if settings["method"] != "lpld" and "factor" in settings else settings
    teachers = [bench.teacher(name) for name in settings.get("teachers", ["sgd"])]
    seed, r, method = settings["seed"], settings["recover"], settings["method"]
    images: dict[tuple[int, int], torch.Tensor] = {}
    losses: dict[tuple[int, int], float] = {}

    def solve(labels: list[int], numbers: list[int], start: torch.Tensor, address: tuple[int, int], **how: Any) -> None:
        done = ref.optimise(start, labels, teachers, r, address, fed("sgd"), **how)
        mean, std = (torch.tensor(values).view(1, 3, 1, 1).double() for values in fed("sgd"))
        pixels = ref.eight_bit(done * std + mean)
        x = ref.normal(pixels.double() / 255, *fed("sgd"))
        each = [
            torch.nn.functional.cross_entropy(m(x), torch.tensor(labels), reduction="none").detach() for m in teachers
        ]
        for row, (label, number) in enumerate(zip(labels, numbers, strict=True)):
            images[label, number] = pixels[row]
            losses[label, number] = float(sum(loss[row] for loss in each)) / len(each)

    if method == "lpld":
        parts = math.ceil(2 / settings["batch"])
        known = ref.class_statistics(
            bench.data(), teachers[0], settings["stats_batch"], settings["bn_stats"], seed, fed("sgd")
        )
        for label in range(CLASSES):
            targets = [(mean[label], var[label]) for mean, var in known]
            for part in range(parts):
                numbers = list(range(part * settings["batch"], min((part + 1) * settings["batch"], 2)))
                address = (seed, label * parts + part)
                solve([label] * len(numbers), numbers, gaussian(*address, len(numbers)), address, targets=targets)
    else:
        chunks = math.ceil(CLASSES / settings["batch"])
        for unit in range(2 * chunks):
            number, chunk = divmod(unit, chunks)
            labels = list(range(chunk * settings["batch"], min((chunk + 1) * settings["batch"], CLASSES)))
            patches = patch_starts(bench, settings, labels, number) if "factor" in settings else None
            start = gaussian(seed, unit, len(labels)) if patches is None else patches
            how = {"residual": patches, "alpha": settings["alpha"]} if method == "fadrm" else {}
            if method == "fadrm":
                start = ref.bilinear(start, r["sizes"][0])
            solve(labels, [number] * len(labels), start, (seed, unit), **how)
    wanted = [(label, number) for label in range(CLASSES) for number in range(2)]
    yield from image_set(
        bench, settings, torch.stack([images[at] for at in wanted]), [losses[at] for at in wanted], "factor" in settings
    )
