"""Patches as an image set: real crops of a chosen difficulty, the starting point of FADRM and SRe2L++.

How the published patches were chosen is not published. This is our reading: images ranked by the teacher's loss on
their best crop as in RDED; easy, medium and hard are the lowest, middle and highest ranks.
"""

from hald.data.reader import open_dataset
from hald.specs.images import ImagesSpec, Patches
from hald.synthesis.assemble import assemble
from hald.synthesis.build import Places, Resources, Unit
from hald.synthesis.mosaic import patch_images
from hald.synthesis.ranking import open_ranking

NOTE = "our reading of an unpublished step: ranks of the teacher's loss on each image's best crop"


def synthesize(spec: ImagesSpec, places: Places, resources: Resources) -> None:
    """Make the image set from the ranking."""
    source = spec.source
    assert isinstance(source, Patches)
    assert places.made_from is not None
    dataset = open_dataset(places.dataset)
    ranking = open_ranking(places.made_from, dataset, spec.size // source.factor, resources.device)

    def make(label: int) -> Unit:
        images, loss = patch_images(ranking, label, source.difficulty, source.factor, spec.size, range(spec.ipc))
        return Unit(images.cpu().numpy(), loss.numpy())

    assemble(spec, dataset, places, resources, make, note=NOTE)
