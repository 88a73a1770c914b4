"""What golden cases share: a folder with tiny images, one experiment at a time, checks with their tolerance."""

import contextlib
import functools
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file
from torchvision.transforms import functional as tv

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
import reference as ref  # noqa: E402
from adapter import networks  # noqa: E402

from chain import Around, Chain, formula, image_folders, make_chain  # noqa: E402

CLASSES, SIZE, TRAIN, TEST = 3, 16, 12, 5
SCALE, RATIO = (0.25, 0.9), (0.7, 1.4)
FLIP = 0.3305  # so close to draws of several stages that one per cent more mirrors another image
MEAN, STD = (0.48, 0.5, 0.53), (0.24, 0.26, 0.29)
OTHER = ((0.3, 0.4, 0.45), (0.31, 0.22, 0.27))  # what the second teacher is fed with

DATASET = {
    "source": "imagefolder",
    "size": SIZE,
    "classes": CLASSES,
    "mean": list(MEAN),
    "std": list(STD),
    "augment": {"scale": list(SCALE), "ratio": list(RATIO), "flip": FLIP},
}
RECIPE = {"epochs": 2, "batch": 10, "lr": 0.05, "weight_decay": 0.003, "warmup": 1, "momentum": 0.8}
TEACHERS: dict[str, dict[str, Any]] = {
    "sgd": {"recipe": RECIPE | {"optimizer": "sgd", "crop": "padded", "padding": 3}},
    "adam": {
        "recipe": RECIPE | {"optimizer": "adam", "lr": 0.04, "crop": "resized", "epochs": 3, "warmup": 2},
        "seed": 5,
        "mean": list(OTHER[0]),
        "std": list(OTHER[1]),
    },
    "adamw": {"recipe": RECIPE | {"optimizer": "adamw", "lr": 0.05, "weight_decay": 0.2, "crop": "resized"}, "seed": 1},
}
EVALUATION: dict[str, Any] = {
    "lr": 0.02,
    "eta": 1.3,
    "weight_decay": 3.0,
    "beta2": 0.97,
    "temperature": 2.5,
    "kd_scale": "none",
    "smoothing": 0.6,
    "handover": "carry",
    "hard_temperature": 1.0,
    "sampling": "permutation",
    "loss": {"name": "kl"},
    "measure_every": 1,
}


@dataclass(frozen=True)
class Check:
    """One number or array beside what it should be; `off` is the largest difference that rounding may make."""

    name: str
    found: Any
    expected: Any
    off: float

    def error(self) -> float:
        """Largest difference, as a share of what is allowed."""
        found, expected = np.asarray(self.found), np.asarray(self.expected)
        if found.shape != expected.shape:
            return math.inf
        if found.dtype.kind not in "fiub" or not self.off:
            return 0.0 if np.array_equal(found, expected) else math.inf
        same = found == expected  # infinities too
        difference = np.abs(np.where(same, 0, found.astype(float)) - np.where(same, 0, expected.astype(float)))
        return float(np.nan_to_num(difference, nan=math.inf).max(initial=0)) / self.off


@dataclass
class Bench:
    """A folder in which cases run; what several of them need is made once."""

    folder: Path
    kept: dict[str, Any] = field(default_factory=dict)
    moved: tuple[str, ...] = ()  # the number of the YAML that is moved by one per cent
    numbers: list[tuple[str, ...]] = field(default_factory=list)  # all that the last experiment has
    case: str = ""  # that is being run
    storing: dict[str, Any] | None = None  # what cases find is to be stored
    around: Around = lambda job, file: contextlib.nullcontext()  # entered around every job that is run

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What `make` gives, remembered."""
        if name not in self.kept:
            self.kept[name] = make()
        return self.kept[name]

    def root(self) -> Path:
        """The images, as folders of files."""
        counts = {"train": TRAIN, "test": TEST}
        return self.once("root", lambda: image_folders(self.folder / "data", counts, CLASSES, SIZE))

    def data(self) -> ref.Data:
        """The same images from the formula."""

        def split(part: int, count: int) -> NDArray[np.uint8]:
            images = [formula(c, 100 * part + i, SIZE) for c in range(CLASSES) for i in range(count)]
            return np.stack(images).transpose(0, 3, 1, 2)

        labels = ([c for c in range(CLASSES) for _ in range(count)] for count in (TRAIN, TEST))
        train, test = labels
        whole = (split(0, TRAIN), train, split(1, TEST), test, CLASSES, SIZE, MEAN, STD, SCALE, RATIO, FLIP)
        return self.once("data", lambda: ref.Data(*whole))

    def encoded(self) -> tuple[dict[str, Any], ref.Data]:
        """Images of 26 x 20 pixels that have to be decoded, as files and as PIL's; resized to 18 for the test split."""
        raw = self.folder / "encoded"
        images = [Image.fromarray(formula(c, i, 26)[:20]) for c in range(CLASSES) for i in range(TRAIN)]
        test = [Image.fromarray(formula(c, 100 + i, 26)[:20]) for c in range(CLASSES) for i in range(TEST)]
        for split, each in (("train", images), ("test", test)):
            for number, image in enumerate(each):
                file = raw / split / f"class{number * CLASSES // len(each)}" / f"{number:03d}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                image.save(file)
        centres = [np.asarray(tv.center_crop(tv.resize(image, 18), SIZE)) for image in test]
        pixels = np.stack(centres).transpose(0, 3, 1, 2)
        labels = ([c for c in range(CLASSES) for _ in range(count)] for count in (TRAIN, TEST))
        train_labels, test_labels = labels
        whole = (images, train_labels, pixels, test_labels, CLASSES, SIZE, MEAN, STD, SCALE, RATIO, FLIP)
        return {"root": str(raw), "resize": 18}, ref.Data(*whole)

    def chain(self, **changes: Any) -> Chain:
        """An experiment with one image set, one student, one evaluation, one cell."""
        ipc, slc, seeds = (changes.pop(name, default) for name, default in (("ipc", 2), ("slc", 2), ("seeds", 1)))
        images = changes.pop("images", {"method": "real"})
        evaluation = changes.pop("evaluation", {})
        experiment = {
            "dataset": "waves",
            "threads": 1,
            "epochs": 6,
            "teacher": "sgd",
            "teachers": {name: {"arch": "small/resnet10-w4"} | entry for name, entry in TEACHERS.items()},
            "images": {"set": images},
            "students": {"student": {"arch": "small/resnet10-w4"}},
            "labels": {"batch": 4, "codec": "f16"},
            "evaluations": {"it": {"order": "soft"} | evaluation},
            "tables": {
                "cells": {
                    "caption": "one cell",
                    "images": ["set"],
                    "ipc": [ipc],
                    "slc": [slc],
                    "students": ["student"],
                    "evaluations": ["it"],
                    "seeds": seeds,
                }
            },
        }
        dataset = DATASET | {"root": str(self.root())} | changes.pop("dataset", {})
        whole = {"experiment": experiment | changes, "datasets": {"waves": dataset}}
        self.numbers = [path for path, value in leaves(whole) if isinstance(value, float) and value]
        whole = {name: moved(part, (name,), self.moved) for name, part in whole.items()}
        return replace(make_chain(self.folder, whole["experiment"], whole["datasets"]), around=self.around)

    def teacher(self, name: str) -> ref.Tiny:
        """A teacher that reference.py has trained."""
        entry = TEACHERS[name]
        return self.once(
            f"teacher {name}",
            lambda: ref.squeeze(self.data(), entry["recipe"], entry.get("seed", 0), fed(name)),
        )


def leaves(content: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All values of nested mappings and lists, with the way to them."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    yield from () if isinstance(content, dict | list) else [(path, content)]
    for name, value in items:
        yield from leaves(value, (*path, str(name)))


def moved(content: Any, path: tuple[str, ...], by: tuple[str, ...]) -> Any:
    """The same content, with the number at `by` moved by one per cent."""
    if isinstance(content, dict):
        return {name: moved(value, (*path, str(name)), by) for name, value in content.items()}
    if isinstance(content, list):
        return [moved(value, (*path, str(i)), by) for i, value in enumerate(content)]
    return content * 1.01 if path == by else content


def fed(name: str) -> tuple[Any, Any]:
    """Mean and deviation that a teacher is fed with."""
    return TEACHERS[name].get("mean", MEAN), TEACHERS[name].get("std", STD)


def drawn_view(view: int, count: int, labels: dict[str, Any], augment: dict[str, Any]) -> ref.View:
    """What `reference` draws for an experiment's labels."""
    how = {"scale": SCALE, "ratio": RATIO, "flip": FLIP} | augment
    mix = {"mix": labels.get("mix", "cutmix"), "mix_alpha": labels.get("mix_alpha", 1.0)}
    return ref.draw_view(labels.get("seed", 42), view, count, labels.get("batch", 4), SIZE, SIZE, **how, **mix)


def load_teacher(folder: Path) -> ref.Tiny:
    """The network whose weights lie in a folder."""
    model = ref.Tiny(CLASSES)
    model.load_state_dict(load_file(folder / "teacher.safetensors"))
    return model.eval()


Case = Callable[[Bench], Iterator[Check]]
Parts = tuple[str, ...]  # of the package, `hald.code_digests.entry_modules`: those whose numbers a case checks
CASES: dict[str, tuple[Parts, Case]] = {}


def case(*parts: str) -> Callable[[Case], Case]:
    """Declare a case of these parts."""

    def declare(function: Case) -> Case:
        CASES[function.__name__] = (parts, function)
        return function

    return declare


def cases(
    parts: Parts | Mapping[str, Parts], **variants: Any
) -> Callable[[Callable[[Bench, Any], Iterator[Check]]], None]:
    """Declare one case for each variant; `parts` are of all of them, or of each by its name."""

    def declare(function: Callable[[Bench, Any], Iterator[Check]]) -> None:
        for name, variant in variants.items():
            own = parts[name] if isinstance(parts, Mapping) else parts
            CASES[f"{function.__name__}_{name}"] = (own, lambda bench, variant=variant: function(bench, variant))

    return declare


def run(name: str, bench: Bench) -> list[Check]:
    """All checks of a case."""
    bench.case = name
    with networks(ref.Tiny):
        return list(CASES[name][1](bench))


STORED = Path(__file__).with_name("stored.json")
Numbers = Iterator[tuple[str, Any, float]]


def stored(function: Callable[[Bench, Any], Numbers]) -> Callable[[Bench, Any], Iterator[Check]]:
    """Compare (name, found, rounding) with what an earlier commit found: for what has no independent computation."""

    @functools.wraps(function)
    def checked(bench: Bench, variant: Any) -> Iterator[Check]:
        known = json.loads(STORED.read_text())[bench.case] if bench.storing is None else {}
        for name, found, off in function(bench, variant):
            if bench.storing is not None:
                bench.storing.setdefault(bench.case, {})[name] = found
            yield Check(name, found, found if bench.storing is not None else known.pop(name, None), off)
        yield Check("numbers that are no longer found", list(known), [], 0)

    return checked


def noticed_numbers(names: list[str], folder: Path) -> Iterator[tuple[str, dict[tuple[str, ...], bool]]]:
    """For every case the numbers of its YAML, and whether a check fails when one is moved by one per cent."""
    for name in names:
        bench = Bench(folder)
        run(name, bench)
        found = {}
        for path in list(bench.numbers):
            bench.moved = path
            try:
                found[path] = any(check.error() > 1 for check in run(name, bench))
            except Exception:  # refused, or another shape
                found[path] = True
        yield name, found
