"""From the images of each class to a finished set: written, graded by its teachers, with a preview, put in place."""

import shutil
import time
from collections.abc import Callable
from typing import Any

from hald.data.reader import PreparedDataset
from hald.files import publish_dir
from hald.jobs import Progress, StopRequest, log, write_timing
from hald.specs.base import to_dict
from hald.specs.images import ImagesSpec
from hald.synthesis.build import Places, Resources, Unit, write_arrays, write_record
from hald.synthesis.grade import grade
from hald.synthesis.imageset import ImageSet
from hald.synthesis.preview import draw_sheet


def assemble(
    spec: ImagesSpec,
    dataset: PreparedDataset,
    places: Places,
    resources: Resources,
    make: Callable[[int], Unit],
    **facts: Any,
) -> None:
    """Make every class's images with `make` and publish the set."""
    start, classes = time.monotonic(), dataset.classes
    finished = places.partial / "set.zarr"
    shutil.rmtree(finished, ignore_errors=True)
    progress = Progress(len(classes), "classes")
    with StopRequest() as stop:

        def made(label: int) -> Unit:
            stop.check()
            progress.step(classes[label])
            return make(label)

        digest = write_arrays(finished, map(made, range(len(classes))), classes, spec.ipc, spec.size)
    images = ImageSet(finished, classes, spec.ipc, digest, dataset.digest)
    grades = [grade(images, folder, resources.floor, resources.device) for folder in places.teachers]
    for entry in grades:
        log.info("%(arch)s classifies %(classified).1f %% of the set as meant", entry)
    if grades:
        facts |= {"classified": grades[0]["classified"], "diversity": grades[0]["diversity"], "teachers": grades}
    draw_sheet(images.folder, images.ipc).save(finished / "preview.png")
    facts |= {"method": spec.method, "spec": to_dict(spec), "dataset_digest": dataset.digest}
    write_record(finished, classes, spec.ipc, digest, **facts)
    write_timing(finished / "timing.json", time.monotonic() - start, resources.device.type, *spec.effort)
    publish_dir(finished, places.target, "image_set.json")
    shutil.rmtree(places.partial, ignore_errors=True)
