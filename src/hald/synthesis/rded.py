"""RDED: the most recognisable crops of real images, put together without optimisation.

The IPC x factor^2 crops of lowest loss of a ranking; image j is a factor x factor mosaic whose cell k holds crop
k * IPC + j. Pixels are rounded rather than truncated, and no JPEG is written.
"""

import torch

from hald.data.reader import open_dataset
from hald.specs.images import FromRanking, ImagesSpec
from hald.synthesis.assemble import assemble
from hald.synthesis.build import Places, Resources, Unit
from hald.synthesis.mosaic import mosaic
from hald.synthesis.ranking import open_ranking


def synthesize(spec: ImagesSpec, places: Places, resources: Resources) -> None:
    """Make the image set from the ranking."""
    source = spec.source
    assert isinstance(source, FromRanking)
    assert places.made_from is not None
    dataset = open_dataset(places.dataset)
    ranking = open_ranking(places.made_from, dataset, spec.size // source.factor, resources.device)

    def make(label: int) -> Unit:
        crops, loss = ranking.best(label, spec.ipc * source.factor**2)
        cells = torch.from_numpy(loss).view(source.factor**2, spec.ipc)
        return Unit(mosaic(crops, spec.ipc, source.factor, spec.size).cpu().numpy(), cells.mean(dim=0).numpy())

    used = [len(ranking.unit(label)["loss"]) for label in range(len(dataset.classes))]
    assemble(spec, dataset, places, resources, make, mipc_used=used)
