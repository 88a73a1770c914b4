"""How well classes separate in a student's last features: a picture in the plane, and silhouette scores.

The paper prints scores without saying of which layer, images or space; we report the features' own and the plane's.
"""

import importlib
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import silhouette_score
from torch import Tensor, nn

from hald.analysis.frozen_network import FORWARD, Pixels, Probe, chunks, pick
from hald.analysis.subjects import Found, Lab
from hald.errors import UserError
from hald.numerics.random_streams import Floats, Ints

Points = NDArray[np.float64]


@dataclass(frozen=True)
class Embedding:
    """Points in the plane with their classes, how they were made (umap or pca), and both silhouette scores."""

    how: str
    points: list[list[float]]
    labels: list[int]
    silhouette_features: float
    silhouette_plane: float


def measure(lab: Lab, number: int) -> Found:
    """How well classes separate in a student's last features of the test pictures."""
    options = lab.spec.options
    images, labels = lab.test
    classes = np.arange(min(options["samples"] or 10, len(lab.dataset.classes)))
    student = lab.student(lab.spec.subjects[number])
    found = embedding(student, images, labels, classes, options["seed"], options["plane"])
    return asdict(found) | {"classes": lab.dataset.classes}


def embedding(probe: Probe, images: Pixels, labels: Ints, classes: Ints, seed: int, how: str) -> Embedding:
    """Features of all images of the chosen `classes`, put into the plane by `umap` or `pca`."""
    rows = np.flatnonzero(np.isin(labels, classes))
    chosen = labels[rows]
    if len(np.unique(chosen)) < 2 or len(rows) <= len(np.unique(chosen)):
        raise UserError(
            f"a silhouette needs two classes or more, with more images than classes; found {len(rows)} images of "
            f"{len(np.unique(chosen))} classes"
        )
    features = penultimate(probe, images, rows)
    points = umap(features, seed) if how == "umap" else pca(features)
    scores = [float(silhouette_score(values, chosen)) for values in (features, points)]
    return Embedding(how, points.tolist(), chosen.tolist(), *scores)


@torch.inference_mode()
def penultimate(probe: Probe, images: Pixels, rows: Ints) -> Floats:
    """(n, F) inputs of the network's classifier, for whole images in eval mode."""
    seen: list[Tensor] = []
    handle = classifier(probe.model).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].double().cpu()))
    try:
        for part in chunks(rows, FORWARD):
            probe.logits(pick(images, part, probe.device).float().div_(255))
    finally:
        handle.remove()
    return torch.cat(seen).flatten(1).numpy()


def classifier(model: nn.Module) -> nn.Linear:
    """The last linear layer."""
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise UserError(f"{type(model).__name__} has no linear layer: it is not known what its last features are")
    return linear[-1]


def pca(features: Floats) -> Points:
    """(n, F) -> (n, 2) on the first two principal axes; each axis points where its largest entry is positive."""
    centred = features - features.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])
    return np.asarray(centred @ (axes * signs[:, None]).T, dtype=np.float64)


def umap(features: Floats, seed: int, neighbours: int = 15, min_dist: float = 0.1) -> Points:
    """(n, F) -> (n, 2) by UMAP, with a fixed seed (and therefore one thread)."""
    reducer = importlib.import_module("umap").UMAP(
        n_neighbors=min(neighbours, len(features) - 1), min_dist=min_dist, random_state=seed, n_jobs=1
    )
    return np.asarray(reducer.fit_transform(features), dtype=np.float64)
