"""Patches as an image set: real crops of a chosen difficulty, the starting point of FADRM and SRe2L++.

How the published patches were chosen is not published. This is our reading: images ranked by the teacher's loss on
their best crop as in RDED; easy, medium and hard are the lowest, middle and highest ranks.
"""

from hald.datasets.reader import open_dataset
from hald.jobs.job import Job
from hald.numerics.device import setup
from hald.synthesis.image_set_writer import Unit, assemble
from hald.synthesis.mosaics import patch_images
from hald.synthesis.ranking import open_ranking
from hald.synthesis.spec import ImagesSpec, Patches

NOTE = "our reading of an unpublished step: ranks of the teacher's loss on each image's best crop"


def make(job: Job[ImagesSpec]) -> None:
    """Make the image set from the ranking."""
    spec, source = job.spec, job.spec.source
    assert isinstance(source, Patches)
    dataset, device = open_dataset(job.made_from[spec.dataset]), setup(spec.threads)
    ranking = open_ranking(job.made_from[source.ranking], dataset, spec.size // source.factor, device)

    def made(label: int) -> Unit:
        images, loss = patch_images(ranking, label, source.difficulty, source.factor, spec.size, range(spec.ipc))
        return Unit(images.cpu().numpy(), loss.numpy())

    assemble(job, dataset, device, made, note=NOTE)
