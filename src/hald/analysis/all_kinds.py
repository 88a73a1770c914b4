"""The kinds of analysis: what each finds out about one of its subjects, as plain JSON values.

Where a setting is left empty, its value is that of the released analysis code.
"""

import base64
import io
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from PIL import Image

from hald.analysis.consistency import FLIPPED, crop_consistency, model_consistency
from hald.analysis.kinds.drift.compute import as_picture, crop_pictures, drift_examples, most_drifting
from hald.analysis.kinds.embedding.compute import embedding
from hald.analysis.kinds.gradients.compute import gradient_similarity, released_spec
from hald.analysis.kinds.landscape.compute import landscape, make_plane
from hald.analysis.kinds.lvsd.compute import lvsd, paper_definition, varied_definition
from hald.analysis.kinds.theory.compute import deviation_law, effective_sample_size, inversion, variance_law
from hald.analysis.kinds.updates.compute import update_sizes
from hald.analysis.labels_by_image import image_labels, image_logits, view_losses
from hald.analysis.spec import Subject
from hald.analysis.subjects import Lab
from hald.errors import UserError
from hald.evaluation.spec import RunSpec
from hald.evaluation.train import load_material
from hald.networks.build import build_model
from hald.networks.memory_layout import laid_out
from hald.numerics.random_streams import generator
from hald.plain import from_dict

Found = dict[str, Any]
FULL_COVERAGE = 300  # label epochs that published storage is for
MEBI = 2**20


def drift_ratio(lab: Lab, number: int) -> Found:
    """LVSD of a teacher on distilled images, with the paper's fixed weak view and with one that varies."""
    subject, options = lab.spec.subjects[number], lab.spec.options
    probe, (images, _) = lab.teacher(subject), lab.images(subject)
    wanted = min(options["samples"] or 1000, len(images))
    rows = np.sort(generator("lvsd-images", options["seed"]).permutation(len(images))[:wanted])
    draws = options["crops"] or 8
    definitions = (
        paper_definition(options["central"], draws, options["flip"]),
        varied_definition(draws, options["flip"]),
    )
    found = [asdict(lvsd(probe, images, rows, definition, options["seed"])) for definition in definitions]
    for drift in found:
        drift["percent_above_one"] = 100 * drift["share_above_one"]
    return {drift["definition"]: drift for drift in found}


def crops_of_one_image(lab: Lab, number: int) -> Found:
    """Agreement of a student's answers for two crops of an image."""
    subject, options = lab.spec.subjects[number], lab.spec.options
    images, labels = lab.images(subject)
    return asdict(crop_consistency(lab.student(subject), images, labels, options["samples"] or 500, options["seed"]))


def with_reference(lab: Lab, number: int) -> Found:
    """Agreement of a student with the reference student on crops of the test pictures."""
    assert lab.spec.reference is not None
    return _agreement(lab, lab.spec.subjects[number], lab.spec.reference)


def with_teacher(lab: Lab, number: int) -> Found:
    """Agreement of a student with its teacher on crops of the test pictures."""
    return _agreement(lab, lab.spec.subjects[number], None)


def _agreement(lab: Lab, subject: Subject, reference: Subject | None) -> Found:
    """By temperature, as T0.5 and T1; cosines also in percent, as one of the paper's tables has them."""
    options = lab.spec.options
    other = lab.student(reference) if reference else lab.teacher(subject)
    rule = replace(FLIPPED, flip=options["flip"])
    crops = options["crops"] or 10
    found = model_consistency(lab.student(subject), other, lab.test[0], options["seed"], crops, rule=rule)
    by_temperature = {
        f"T{t}".replace(".", "_"): asdict(pair) | {"cosine_percent": 100 * pair.cosine}
        for t, pair in found.by_temperature.items()
    }
    return by_temperature | {"images": found.images, "crops": found.crops}


def gradients(lab: Lab, number: int) -> Found:
    """Cosine of soft and hard gradients along a training, and how many labels the soft ones then count as."""
    subject, options = lab.spec.subjects[number], lab.spec.options
    spec = released_spec(from_dict(RunSpec, options["runs"][number]), options["epochs"])
    torch.manual_seed(options["seed"])
    student = laid_out(build_model(spec.arch, spec.classes, spec.size), lab.device)
    images, labels = lab.images(subject)
    target = torch.from_numpy(labels).to(lab.device)
    found = gradient_similarity(spec, student, lab.teacher(subject), images, target, options["seed"])
    per_image = subject.place["slc"] / subject.place["ipc"]
    return asdict(found) | {
        "labels_per_image": per_image,
        "effective_labels_per_image": effective_sample_size(per_image, found.mean),
    }


def updates(lab: Lab, number: int) -> Found:
    """Size of every optimiser step of a staged training, and of the logits."""
    subject, options = lab.spec.subjects[number], lab.spec.options
    spec = from_dict(RunSpec, options["runs"][number])
    material = load_material(spec, lab.folders[lab.spec.dataset], lab.folders[subject.labels], lab.device)
    return asdict(update_sizes(material, options["seed"]))


def landscapes(lab: Lab, number: int) -> Found:
    """Loss around a student on its distilled images and on the test pictures; the other subject gives a direction."""
    subject, options = lab.spec.subjects[number], lab.spec.options
    other = lab.spec.subjects[number + 1 if number % 2 == 0 else number - 1]
    probe = lab.student(subject)
    plane = make_plane(probe.model, lab.student(other).model, options["seed"])
    resolution = options["resolution"]
    return {
        "train": asdict(landscape(probe, plane, *lab.images(subject), resolution)),
        "test": asdict(landscape(probe, plane, *lab.test, resolution)),
    }


def features(lab: Lab, number: int) -> Found:
    """How well classes separate in a student's last features of the test pictures."""
    options = lab.spec.options
    images, labels = lab.test
    classes = np.arange(min(options["samples"] or 10, len(lab.dataset.classes)))
    found = embedding(
        lab.student(lab.spec.subjects[number]), images, labels, classes, options["seed"], options["plane"]
    )
    return asdict(found) | {"classes": lab.dataset.classes}


def laws(lab: Lab, number: int) -> Found:
    """The paper's laws about s labels per image on stored labels; the deviation law with a student's losses."""
    subject = lab.spec.subjects[number]
    store, place = lab.store(subject), subject.place
    views = place["slc"] // place["ipc"]
    if views < 2:
        raise UserError(
            f"the laws compare labels of one image: SLC {place['slc']} at IPC {place['ipc']} gives {views} for each, "
            f"ask for slc: {2 * place['ipc']} or more"
        )
    labels = image_labels(store)
    p = image_logits(store, views, np.arange(store.header.count), lab.device).double().softmax(dim=2)
    return {
        "views": views,
        "variance": [asdict(point) for point in variance_law(p)],
        "inversion": asdict(inversion(p, labels)),
        "deviation": [asdict(point) for point in deviation_law(view_losses(lab.student(subject), store, views))],
    }


def examples(lab: Lab, number: int) -> Found:
    """Images whose labels drift most over their crops: the crops, and the teacher's first classes for each."""
    subject, options = lab.spec.subjects[number], lab.spec.options
    store, crops = lab.store(subject), options["crops"] or 4
    views = subject.place["slc"] // subject.place["ipc"]
    images = most_drifting(store, views, options["samples"] or 4)
    shown = drift_examples(store, views, images, min(crops, views))
    pictures = store.images()
    return {
        "examples": [asdict(example) for example in shown],
        "images": [as_text(as_picture(pictures[example.image])) for example in shown],
        "crops": [[as_text(picture) for picture in row] for row in crop_pictures(store, shown)],
    }


def as_text(picture: Any) -> str:
    """A picture (H, W, 3) as base64 of a PNG, so that a result is one JSON file."""
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "png")
    return base64.b64encode(stream.getvalue()).decode()


def storage(lab: Lab, number: int) -> Found:
    """Measured megabytes (2^20) of an image set, of one label view, and of 300 such views."""
    store = lab.store(lab.spec.subjects[number])
    views = store.views()
    view = sum(entry["bytes"] for view in views for entry in store.marked_files(view).values()) / len(views)
    held = sum(file.stat().st_size for file in (store.folder / "images").rglob("*") if file.is_file())
    raw = 2 * store.header.count * len(store.header.classes)
    return {
        "image_mb": held / MEBI,
        "view_mb": view / MEBI,
        "full_label_mb": FULL_COVERAGE * view / MEBI,
        "full_label_fp16_mb": FULL_COVERAGE * raw / MEBI,
        "views_measured": len(views),
    }


KINDS: dict[str, Callable[[Lab, int], Found]] = {
    "lvsd": drift_ratio,
    "crop_consistency": crops_of_one_image,
    "reference_consistency": with_reference,
    "teacher_consistency": with_teacher,
    "gradients": gradients,
    "updates": updates,
    "landscape": landscapes,
    "embedding": features,
    "theory": laws,
    "drift": examples,
    "storage": storage,
}
