"""Checks that can be made before any work starts."""

import functools
import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hald.datasets.spec import DatasetSpec
from hald.errors import UserError
from hald.files import read_json
from hald.jobs.job import AnyJob
from hald.plan.model import Plan
from hald.same_origin import require_same_classes
from hald.squeeze.spec import TeacherSpec
from hald.synthesis.class_folders import find_images

if TYPE_CHECKING:
    from torch import nn


def check(plan: Plan, jobs: list[AnyJob]) -> None:
    """Everything that can be known before the first of these jobs starts."""
    check_stores(jobs)
    check_datasets(plan, {key for job in jobs for key in job.made_from if key in plan.datasets} | _prepared(jobs))
    check_classes(plan)
    check_networks(jobs)
    check_images(plan, jobs)
    check_packages(jobs)


def _prepared(jobs: list[AnyJob]) -> set[str]:
    return {job.key for job in jobs if job.stage == "dataset"}


def check_datasets(plan: Plan, keys: Iterable[str]) -> None:
    """Refuse a run whose datasets are not where the config says, or (once prepared) have too few images."""
    from hald.datasets.prepare import require_counts

    for key in sorted(set(keys)):
        spec = plan.datasets[key]
        folder = plan.folder("dataset", key)
        if not (folder / "manifest.json").is_file():
            _look_at_raw_data(spec)
            continue
        manifest = read_json(folder / "manifest.json")
        if spec.root and "$" not in spec.root and manifest["root"] != spec.root:
            raise UserError(
                f"dataset '{spec.name}' was prepared from {manifest['root']}, the config now says {spec.root}. "
                f"If it is the same data, set the root back; if not, give the dataset another name, or remove {folder} "
                f"to prepare it anew"
            )
        labels = np.repeat(np.arange(len(manifest["classes"])), manifest["train"]["per_class"])
        require_counts(spec, manifest["classes"], labels)


def _look_at_raw_data(spec: DatasetSpec) -> None:
    """Root, classes and images per class of a dataset that is not prepared yet (images are not decoded)."""
    from hald.datasets.prepare import require_counts, select_classes
    from hald.datasets.raw import read_raw, require_root

    if spec.source != "sklearn_digits":
        root = require_root(spec)
        if spec.source == "torchvision" and not root.is_dir():
            return  # will be downloaded
    raw = select_classes(read_raw(spec), spec)
    require_counts(spec, raw.classes, raw.train.labels)


def check_stores(jobs: Iterable[AnyJob]) -> None:
    """Refuse a run that would add labels to a store that it may not write to."""
    for folder in sorted({job.folder for job in jobs if job.stage == "relabel"}):
        there = next(path for path in (folder / "views", folder, *folder.parents) if path.exists())
        if not os.access(there, os.W_OK):
            raise UserError(
                f"label store {folder} lacks views that this run needs, and {there} is read-only for you. Ask its "
                f"owner to grow it or for permission, or set another `stores:` folder in config/config.yaml"
            )


def check_classes(plan: Plan) -> None:
    """Refuse a run if things that exist already and belong together have different class orders."""
    for key in plan.datasets:
        teachers = [t for t, spec in plan.teachers.items() if spec.dataset == key]
        images = [i for i, spec in plan.images.items() if spec.dataset == key]
        stores = [store for store, spec in plan.labels.items() if spec.images in images]
        records = [plan.file("dataset", key)]
        records += [plan.file("squeeze", teacher) for teacher in teachers]
        records += [plan.file("synthesize", image_set) for image_set in images]
        records += [plan.folder("relabel", store) / "zarr.json" for store in stores]
        found = [(path.parent, _classes(path)) for path in records if path.is_file()]
        for folder, classes in found[1:]:
            remedy = f"Remove the one that is wrong, e.g. `rm -r {folder}`, and run again"
            require_same_classes(classes, str(folder), found[0][1], str(found[0][0]), remedy)


def _classes(record: Path) -> list[str]:
    """Class list of an artefact; a label store keeps it among its attributes."""
    content = read_json(record)
    return list(content["attributes"]["classes"] if record.name == "zarr.json" else content["classes"])


def check_images(plan: Plan, jobs: Iterable[AnyJob]) -> None:
    """Refuse synthesis whose networks have no BN layers to match, or whose foreign images are not all there."""
    for job in jobs:
        if job.stage == "statistics":
            _require_bn("lpld", [plan.teachers[job.spec.teacher]])
        elif job.stage == "recover":
            _require_bn(job.spec.method, [plan.teachers[key] for key in job.spec.teachers])
        elif job.stage == "synthesize" and job.spec.path:
            manifest = plan.file("dataset", job.spec.dataset)
            names = read_json(manifest)["classes"] if manifest.is_file() else None
            find_images(Path(job.spec.path), job.spec.classes, job.spec.ipc, names)


@functools.cache
def _bn_count(network: tuple[str, int, int]) -> int:
    import torch

    from hald.networks.build import build_model
    from hald.synthesis.optimiser.bn_matching import bn_layers

    with torch.device("meta"):
        return len(bn_layers(build_model(*network)))


def _require_bn(method: str, teachers: list[TeacherSpec]) -> None:
    if not any(_bn_count((teacher.arch, teacher.classes, teacher.size)) for teacher in teachers):
        names = ", ".join(teacher.arch for teacher in teachers)
        raise UserError(
            f"{method} matches the statistics of BN layers, and {names} has none; set `teacher` of the image set to a "
            f"network with batch normalisation, e.g. small/resnet18 or torchvision/resnet18"
        )


def check_packages(jobs: Iterable[AnyJob]) -> None:
    """Refuse analyses that need a package which is not installed."""
    options = [job.spec.options for job in jobs if job.stage == "analysis"]
    if any(o["plane"] == "umap" for o in options) and importlib.util.find_spec("umap") is None:
        raise UserError(
            "an embedding is to be made by UMAP, and umap-learn is not installed: type `pip install umap-learn`, or "
            "set `plane: pca` of that analysis"
        )


def check_networks(jobs: Iterable[AnyJob]) -> None:
    """Refuse a run whose networks do not exist, or whose teachers' own weight files are not there or do not fit."""
    built = set()
    for spec in (job.spec for job in jobs if job.stage in ("squeeze", "evaluate")):
        network = (spec.arch, spec.classes, spec.size)
        path = spec.path if isinstance(spec, TeacherSpec) else None
        if path and not Path(path).is_file():
            raise UserError(f"teacher weights {path} do not exist; correct `path` of the teacher in the experiment")
        if network in built and not path:
            continue
        built.add(network)
        from hald.networks.build import build_model
        from hald.networks.weights import load_weights

        model = build_model(*network)
        if path:
            load_weights(model, Path(path), spec.arch)
        _try_size(model, spec.arch, spec.size)


def _try_size(model: "nn.Module", arch: str, size: int) -> None:
    """Refuse a network that cannot take images of the dataset's size."""
    import torch

    try:
        with torch.inference_mode():
            model.eval()(torch.zeros(2, 3, size, size))
    except (RuntimeError, ValueError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"network {arch} cannot take images of {size} x {size} pixels ({reason}); choose another"
        ) from None
