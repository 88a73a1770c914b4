"""Every stage of the chain as one small piece of work, to be killed, starved, raced and fed with bad input."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
from hald import jobs
from hald.jobs import exclusive
from hald.specs.base import Identity
from killing import deadly, die

STAGES = ("squeeze", "rank", "statistics", "recover", "synthesize", "relabel", "evaluate")
WHOLE = ("squeeze", "statistics", "synthesize")  # one piece of work; the others are made in units
IDENTITY = Identity("k" * 10, "c" * 64, "part:1")


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
        recipe = Recipe(epochs=2, batch=256, optimizer="adam", lr=0.01, crop="resized")
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


# What is put into place last by every piece of a stage's work, and says that it is done.
PIECES = {
    "squeeze": ["teacher"],
    "rank": [f"{unit:05d}.npz" for unit in range(4)],
    "statistics": ["statistics.json"],
    "recover": [f"{unit:05d}.npz" for unit in range(3)],
    "synthesize": ["set.zarr"],
    "relabel": [f"{view:05d}.json" for view in range(3)],
    "evaluate": ["seed-0.json", "seed-1.json"],
}


def raced(stage: str, given: Given, target: Path, together: Barrier, moved: Path) -> None:
    """The same as a job of the workflow, at the same moment as others; what it puts into place is noted in `moved`."""
    from hald.labels import relabel

    torch.set_num_threads(1)
    jobs.WAIT = relabel.WAIT = 0.05
    os.replace = noted(os.replace, moved)
    Path.rename = noted(Path.rename, moved)  # type: ignore[method-assign]
    units = {} if stage in WHOLE else {"units": 0}
    snakemake = SimpleNamespace(
        log=[str(moved.with_name(f"{os.getpid()}.log"))],
        params={"work": {"partial": str(target / "partial"), **units}},
        output=[
            str(
                target
                / {"squeeze": "teacher/teacher.json", "synthesize": "set.zarr/image_set.json"}.get(
                    stage, "statistics/statistics.json"
                )
            )
        ],
    )
    target.mkdir(exist_ok=True)
    together.wait(60)
    with jobs.job(snakemake):
        _whole(stage, given, target) if stage in WHOLE else _units(stage, given, target)


def noted(function: Callable[..., Any], moved: Path) -> Callable[..., Any]:
    """`function`, which puts its last argument into place: its name is added to a file that processes share."""

    def wrapped(*arguments: Any) -> Any:
        result = function(*arguments)
        with moved.open("a") as file:
            file.write(Path(arguments[-1]).name + "\n")
        return result

    return wrapped
