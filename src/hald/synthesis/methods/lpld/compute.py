"""LPLD: all images of a class together, matched with that class's BN statistics; classified with the global ones."""

from collections.abc import Callable

import torch

from hald.jobs.job import Job
from hald.synthesis.class_statistics import load_statistics
from hald.synthesis.optimiser.loop import Problem
from hald.synthesis.optimiser.teachers import Bench, gaussian, recover
from hald.synthesis.spec import Lpld, UnitsSpec


def make(job: Job[UnitsSpec]) -> None:
    """Optimise the units of a job."""
    recover(job, problems)


def problems(bench: Bench) -> Callable[[int], list[Problem]]:
    """Unit c: the IPC images of class c, at most `batch` at a time."""
    spec, own = bench.spec, bench.spec.own
    assert isinstance(own, Lpld)
    statistics = load_statistics(bench.made_from[own.statistics], bench.dataset, bench.device)
    parts = -(-own.ipc // spec.batch)

    def problem(label: int) -> list[Problem]:
        found = []
        for part in range(parts):
            images = min(spec.batch, own.ipc - part * spec.batch)
            address = (spec.seed, label * parts + part)
            start = gaussian(*address, (images, 3, spec.size, spec.size), bench.device)
            labels = torch.full((images,), label, device=bench.device)
            found.append(Problem(start, labels, address, targets=statistics.of_class(label)))
        return found

    return problem
