"""Images made elsewhere, for example a released set."""

from pathlib import Path

import numpy as np

from hald.datasets.decode import Pixels, decode, evaluation_image, image_shape
from hald.datasets.reader import open_dataset
from hald.errors import UserError
from hald.jobs.job import Job
from hald.jobs.log import log
from hald.numerics.device import setup
from hald.synthesis.class_folders import find_images, folder_digest
from hald.synthesis.image_set_writer import Unit, assemble
from hald.synthesis.spec import FromFolder, ImagesSpec


def make(job: Job[ImagesSpec]) -> None:
    """Read the folder; images of another size are resized (shorter side, then the centre), and the record says so."""
    spec, source = job.spec, job.spec.source
    assert isinstance(source, FromFolder)
    assert spec.path is not None
    root = Path(spec.path)
    dataset, device = open_dataset(job.made_from[spec.dataset]), setup(spec.threads)
    found = find_images(root, len(dataset.classes), spec.ipc, dataset.classes)
    if source.content is not None and folder_digest(root) != source.content:
        raise UserError(f"the images in {root} changed since this run was planned; start snakemake again")
    shapes = [image_shape(path, str(path)) for files in found.files for path in files]
    resized = sum(shape != (spec.size, spec.size) for shape in shapes)
    log.info("%d images, class folders read by %s, %d resized", spec.ipc * spec.classes, found.order, resized)

    def made(label: int) -> Unit:
        images = [_at_size(decode(path, str(path)), spec.size) for path in found.files[label]]
        return Unit(np.stack(images).transpose(0, 3, 1, 2), np.full(spec.ipc, np.nan, dtype=np.float32))

    assemble(job, dataset, device, made, resized=resized, class_order=found.order)


def _at_size(pixels: Pixels, size: int) -> Pixels:
    return pixels if pixels.shape[:2] == (size, size) else evaluation_image(pixels, size, size, "")
