"""Every stage of the chain as one small piece of work, to be killed, starved, raced and fed with bad input."""

import os
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from conftest import (
    images_spec,
    labels_spec,
    make_labels,
    ranking_spec,
    run_spec,
    statistics_spec,
    teacher_spec,
    units_spec,
)
from hald.jobs import exclusive
from hald.specs.base import Identity
from killing import deadly, die

STAGES = ("squeeze", "rank", "statistics", "recover", "synthesize", "relabel", "evaluate")
WHOLE = ("squeeze", "statistics", "synthesize")  # one piece of work; the others are made in units
IDENTITY = Identity("k" * 10, "c" * 64)


@dataclass(frozen=True)
class Given:
    """What the stages are made from."""

    digits: Path
    teacher: Path
    images: Path
    store: Path

    def but(self, **changes: Path) -> "Given":
        return replace(self, **changes)


def work(stage: str, given: Given, target: Path) -> None:
    """Do a stage's work below `target`, as its rule's script does."""
    torch.set_num_threads(1)
    if stage in WHOLE:
        with exclusive(target / ".claim"):
            _whole(stage, given, target)
    else:
        _units(stage, given, target)


def _whole(stage: str, given: Given, target: Path) -> None:
    from hald import squeeze
    from hald.specs.teacher import Recipe
    from hald.synthesis import build, real, statistics

    cpu = torch.device("cpu")
    resources = build.Resources(cpu, 0, 0.0)
    if stage == "squeeze":
        recipe = Recipe(epochs=3, batch=256, optimizer="adam", lr=0.01, crop="resized")
        squeeze.CHECKPOINT_EPOCHS = 1
        places = squeeze.Places(given.digits, None, target / "teacher", target / "partial")
        squeeze.squeeze(teacher_spec(recipe=recipe), places, cpu, 0)
    elif stage == "statistics":
        statistics.SAVE_BATCHES = 2
        statistics.make_statistics(statistics_spec(), given.digits, given.teacher, target / "statistics", resources)
    else:
        spec = images_spec(teachers=("1" * 10,))
        there = build.Places(given.digits, [given.teacher], None, target / "set.zarr", target / "partial")
        real.synthesize(spec, there, resources)


def _units(stage: str, given: Given, target: Path) -> None:
    from hald.synthesis import build, methods, ranking, recover
    from hald.train import run

    cpu = torch.device("cpu")
    resources = build.Resources(cpu, 0, 0.0)
    if stage == "rank":
        ranking.rank(ranking_spec(), given.digits, given.teacher, target / "ranking", range(4), resources)
    elif stage == "recover":
        places = recover.Places(given.digits, [given.teacher], None, target / "units")
        methods.optimise_units(units_spec("sre2l"), places, range(3), resources)
    elif stage == "relabel":
        make_labels(labels_spec(), given.images, [given.teacher], target / "labels.zarr", range(3))
    else:
        run.CHECKPOINT_EPOCHS = 2
        there = run.Places(given.digits, given.store, target / "records", target / "partial")
        run.evaluate(run_spec(), [0, 1], there, cpu, IDENTITY)


def results(target: Path) -> dict[str, bytes]:
    """Everything that counts below `target`: no timings, and nothing unfinished."""
    found = {}
    for path in sorted(target.rglob("*")):
        name = str(path.relative_to(target))
        if name.startswith(".labels.zarr~"):  # a store that was being made; `hald labels gc` removes it
            continue
        if path.is_file() and "timing" not in name:
            assert "partial" not in name, f"{name} was left behind"
            assert "claim" not in name, f"{name} was left behind"
            found[name] = path.read_bytes()
    return found


def doomed(stage: str, given: Given, target: Path, number: int) -> None:
    """The same, killed by SIGKILL when the n-th file or folder would be put in place (0: after some milliseconds)."""
    if number:
        os.replace = deadly(os.replace, number)
        Path.rename = deadly(Path.rename, number)  # type: ignore[method-assign]
        Path.replace = deadly(Path.replace, number)  # type: ignore[method-assign]
    else:
        threading.Timer(0.3, die).start()
    work(stage, given, target)
