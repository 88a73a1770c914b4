"""Every stage of the chain as one small piece of work, to be killed, starved, raced and fed with bad input."""

import contextlib
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
    DATA,
    IMAGES,
    LABELS,
    TEACHER,
    images_spec,
    job_for,
    labels_spec,
    ranking_spec,
    run_spec,
    statistics_spec,
    teacher_spec,
    units_spec,
)
from hald.evaluation import train as run
from hald.jobs import script
from hald.jobs import units as waiting
from hald.jobs.job import AnyJob
from hald.jobs.units import alone
from hald.squeeze import train as squeeze
from hald.squeeze.spec import Recipe
from hald.synthesis import class_statistics as statistics
from killing import deadly, die

STAGES = ("squeeze", "rank", "statistics", "recover", "synthesize", "relabel", "evaluate")
WHOLE = ("squeeze", "statistics", "synthesize")  # one piece of work; the others are made in units


@dataclass(frozen=True)
class Given:
    """What the stages are made from."""

    digits: Path
    teacher: Path
    images: Path
    store: Path

    def but(self, **changes: Path) -> "Given":
        return replace(self, **changes)


def job_of(stage: str, given: Given, target: Path) -> AnyJob:
    """A stage's job, below `target`."""
    sources = {DATA: given.digits, TEACHER: given.teacher, IMAGES: given.images, LABELS: given.store}
    recipe = Recipe(epochs=2, batch=256, optimizer="adam", lr=0.01, crop="resized")
    spec, folder, units = {
        "squeeze": (teacher_spec(recipe=recipe), "teacher", 1),
        "rank": (ranking_spec(), "ranking", 4),
        "statistics": (statistics_spec(), "statistics", 1),
        "recover": (units_spec("sre2l"), "units", 3),
        "synthesize": (images_spec(teachers=(TEACHER,)), "set.zarr", 1),
        "relabel": (labels_spec(), "labels.zarr", 3),
        "evaluate": (run_spec(), "records", 2),
    }[stage]
    return job_for(spec, target / folder, sources, range(units), partial=target / "partial", key="k" * 10)


def work(stage: str, given: Given, target: Path) -> None:
    """Do a stage's work below `target`, as its rule's script does."""
    torch.set_num_threads(1)
    squeeze.CHECKPOINT_EPOCHS, statistics.SAVE_BATCHES, run.CHECKPOINT_EPOCHS = 1, 2, 2
    job = job_of(stage, given, target)
    with alone(job) if stage in WHOLE else contextlib.nullcontext():
        job.run()
        job.sign()


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
    torch.set_num_threads(1)
    waiting.WAIT = 0.05
    os.replace = noted(os.replace, moved)
    Path.rename = noted(Path.rename, moved)  # type: ignore[method-assign]
    params = SimpleNamespace(job=job_of(stage, given, target).plain())
    target.mkdir(exist_ok=True)
    together.wait(60)
    script.run(SimpleNamespace(log=[str(moved.with_name(f"{os.getpid()}.log"))], params=params))


def noted(function: Callable[..., Any], moved: Path) -> Callable[..., Any]:
    """`function`, which puts its last argument into place: its name is added to a file that processes share."""

    def wrapped(*arguments: Any) -> Any:
        result = function(*arguments)
        with moved.open("a") as file:
            file.write(Path(arguments[-1]).name + "\n" if Path(arguments[-1]).parent.name != "timings" else "")
        return result

    return wrapped
