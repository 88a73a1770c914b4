"""RDED: the most recognisable crops of real images, put together without optimisation.

The IPC x factor^2 crops of lowest loss of a ranking; image j is a factor x factor mosaic whose cell k holds crop
k * IPC + j. Pixels are rounded rather than truncated, and no JPEG is written.
"""

import torch

from hald.datasets.reader import open_dataset
from hald.jobs.job import Job
from hald.numerics.device import setup
from hald.synthesis.image_set_writer import Unit, assemble
from hald.synthesis.mosaics import mosaic
from hald.synthesis.ranking import open_ranking
from hald.synthesis.spec import FromRanking, ImagesSpec


def make(job: Job[ImagesSpec]) -> None:
    """Make the image set from the ranking."""
    spec, source = job.spec, job.spec.source
    assert isinstance(source, FromRanking)
    dataset, device = open_dataset(job.made_from[spec.dataset]), setup(spec.threads)
    ranking = open_ranking(job.made_from[source.ranking], dataset, spec.size // source.factor, device)

    def made(label: int) -> Unit:
        crops, loss = ranking.best(label, spec.ipc * source.factor**2)
        cells = torch.from_numpy(loss).view(source.factor**2, spec.ipc)
        return Unit(mosaic(crops, spec.ipc, source.factor, spec.size).cpu().numpy(), cells.mean(dim=0).numpy())

    used = [len(ranking.unit(label)["loss"]) for label in range(len(dataset.classes))]
    assemble(job, dataset, device, made, mipc_used=used)
