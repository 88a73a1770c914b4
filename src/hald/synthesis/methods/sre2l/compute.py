"""SRe2L: one image of every class at a time, from noise (SRe2L) or from patches (SRe2L++)."""

from collections.abc import Callable

from hald.jobs.job import Job
from hald.synthesis.mosaics import patch_starts
from hald.synthesis.optimiser.loop import Problem
from hald.synthesis.optimiser.teachers import Bench, gaussian, of_unit, recover
from hald.synthesis.spec import UnitsSpec


def make(job: Job[UnitsSpec]) -> None:
    """Optimise the units of a job."""
    recover(job, problems)


def problems(bench: Bench) -> Callable[[int], list[Problem]]:
    """Unit k * chunks + c: image k of the classes of chunk c."""
    spec = bench.spec
    from_patches = None
    if spec.patches:
        from_patches = patch_starts(spec, bench.made_from, bench.dataset, (bench.mean, bench.std), bench.device)

    def problem(unit: int) -> list[Problem]:
        image, labels = of_unit(bench, unit)
        shape = (len(labels), 3, spec.size, spec.size)
        start = from_patches(labels, image) if from_patches else gaussian(spec.seed, unit, shape, bench.device)
        return [Problem(start, labels, (spec.seed, unit))]

    return problem
