"""A random real subset: IPC training images per class at evaluation size, the control of every distillation method."""

import numpy as np

from hald.datasets.decode import evaluation_image
from hald.datasets.reader import open_dataset
from hald.jobs.job import Job
from hald.numerics.device import setup
from hald.numerics.random_streams import permutation
from hald.synthesis.image_set_writer import Unit, assemble
from hald.synthesis.spec import FromDataset, ImagesSpec


def make(job: Job[ImagesSpec]) -> None:
    """Choose `ipc` images of each class in a keyed order; a larger IPC keeps the smaller one's images."""
    spec, source = job.spec, job.spec.source
    assert isinstance(source, FromDataset)
    dataset, device = open_dataset(job.made_from[spec.dataset]), setup(spec.threads)

    def made(label: int) -> Unit:
        members = dataset.train.of_class(label)
        chosen = members[permutation("real", source.seed, label, len(members))[: spec.ipc]]
        images = [
            evaluation_image(dataset.train.read(int(i)), spec.size, source.resize, f"training image {i}")
            for i in chosen
        ]
        return Unit(
            np.stack(images).transpose(0, 3, 1, 2), np.full(spec.ipc, np.nan, dtype=np.float32)
        )  # nothing is optimised

    assemble(job, dataset, device, made)
