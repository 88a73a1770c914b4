"""Image sets of optimised units (SRe2L, LPLD, FADRM)."""

import functools

import numpy as np

from hald.datasets.reader import open_dataset
from hald.jobs.job import Job
from hald.numerics.device import setup
from hald.synthesis.image_set_writer import Unit, assemble
from hald.synthesis.spec import FromUnits, ImagesSpec
from hald.synthesis.unit_files import Arrays, load_unit, require_digest


def make(job: Job[ImagesSpec]) -> None:
    """Put finished units together, class by class."""
    spec, source = job.spec, job.spec.source
    assert isinstance(source, FromUnits)
    folder = job.made_from[source.units]
    dataset, device = open_dataset(job.made_from[spec.dataset]), setup(spec.threads)

    @functools.lru_cache(maxsize=spec.ipc)  # classes of one chunk share their units
    def read(unit: int) -> Arrays:
        arrays = load_unit(folder, unit)
        require_digest(arrays, dataset.digest, f"unit {unit} of {folder}")
        return arrays

    def made(label: int) -> Unit:
        rows = [(read(unit), row) for unit, row in rows_of_class(spec, source.batch, label)]
        images = np.stack([arrays["images"][row] for arrays, row in rows])
        return Unit(images, np.array([arrays["loss"][row] for arrays, row in rows], dtype=np.float32))

    assemble(job, dataset, device, made)


def rows_of_class(spec: ImagesSpec, batch: int, label: int) -> list[tuple[int, int]]:
    """(unit, row) of every image of a class, in order of the image index; `batch` classes make a chunk."""
    if spec.method == "lpld":  # a unit is a class
        return [(label, k) for k in range(spec.ipc)]
    chunks = -(-spec.classes // batch)
    return [(k * chunks + label // batch, label % batch) for k in range(spec.ipc)]
