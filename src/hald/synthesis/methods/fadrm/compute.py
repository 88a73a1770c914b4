"""FADRM: patches optimised in stages of changing size, blended with the patch again between stages.

With several teachers (FADRM+) each iteration uses the next one. As released, the patch is kept at full resolution; ours
is resized in floating point, theirs by OpenCV on 8-bit pixels.
"""

from collections.abc import Callable

from hald.jobs.job import Job
from hald.synthesis.mosaics import patch_starts
from hald.synthesis.optimiser.loop import Problem, resized
from hald.synthesis.optimiser.teachers import Bench, of_unit, recover
from hald.synthesis.spec import Fadrm, UnitsSpec


def make(job: Job[UnitsSpec]) -> None:
    """Optimise the units of a job."""
    recover(job, problems)


def problems(bench: Bench) -> Callable[[int], list[Problem]]:
    """Unit k * chunks + c: image k of the classes of chunk c."""
    spec, own = bench.spec, bench.spec.own
    assert isinstance(own, Fadrm)
    patches = patch_starts(spec, bench.made_from, bench.dataset, (bench.mean, bench.std), bench.device)

    def problem(unit: int) -> list[Problem]:
        image, labels = of_unit(bench, unit)
        patch = patches(labels, image)
        start = resized(patch, spec.recover.sizes[0])
        return [Problem(start, labels, (spec.seed, unit), residual=patch, alpha=own.alpha)]

    return problem
