"""From the images of each class to a finished set: written, graded by its teachers, with a preview, put in place."""

import shutil
import time
from collections.abc import Callable
from typing import Any

import torch

from hald.datasets.reader import PreparedDataset
from hald.files import publish_dir
from hald.jobs.job import Job
from hald.jobs.log import Progress, log
from hald.jobs.signals import StopRequest
from hald.plain import to_dict
from hald.synthesis.grade import grade
from hald.synthesis.image_set import ImageSet
from hald.synthesis.image_set_writer import Unit, write_arrays, write_record
from hald.synthesis.preview import draw_sheet
from hald.synthesis.spec import ImagesSpec


def assemble(
    job: Job[ImagesSpec],
    dataset: PreparedDataset,
    device: torch.device,
    make: Callable[[int], Unit],
    **facts: Any,
) -> None:
    """Make every class's images with `make` and publish the set."""
    start, classes, spec = time.monotonic(), dataset.classes, job.spec
    finished = job.partial / "set.zarr"
    shutil.rmtree(finished, ignore_errors=True)
    progress = Progress(len(classes), "classes")
    with StopRequest() as stop:

        def made(label: int) -> Unit:
            stop.check()
            progress.step(classes[label])
            return make(label)

        digest = write_arrays(finished, map(made, range(len(classes))), classes, spec.ipc, spec.size)
    images = ImageSet(finished, classes, spec.ipc, digest, dataset.digest)
    grades = [grade(images, job.made_from[key], job.floor, device) for key in spec.teachers]
    for entry in grades:
        log.info("%(arch)s classifies %(classified).1f %% of the set as meant", entry)
    if grades:
        facts |= {"classified": grades[0]["classified"], "diversity": grades[0]["diversity"], "teachers": grades}
    draw_sheet(images.folder, images.ipc).save(finished / "preview.png")
    facts |= {"method": spec.method, "spec": to_dict(spec), "dataset_digest": dataset.digest}
    write_record(finished, classes, spec.ipc, digest, **facts)
    job.note_time(start, device.type, folder=finished)
    publish_dir(finished, job.folder, "image_set.json")
    shutil.rmtree(job.partial, ignore_errors=True)
