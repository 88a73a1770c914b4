"""Where the analyses find their students, teachers, images and test pictures."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from hald.analysis.frozen_network import Pixels, Probe
from hald.analysis.labels_by_image import image_labels
from hald.analysis.spec import AnalysisSpec, Subject
from hald.datasets.reader import PreparedDataset, open_dataset
from hald.errors import UserError
from hald.evaluation.kept_students import student_file
from hald.files import read_json
from hald.labels.store import LabelStore
from hald.networks.build import build_model
from hald.networks.memory_layout import laid_out
from hald.networks.weights import load_weights
from hald.numerics.accuracy import TestSet
from hald.numerics.random_streams import Ints
from hald.squeeze.teacher import load_teacher

Found = dict[str, Any]  # what an analysis finds out about a subject, as plain JSON values


class Lab:
    """What one analysis looks at, opened when it is asked for."""

    def __init__(self, spec: AnalysisSpec, folders: Mapping[str, Path], device: torch.device) -> None:
        self.spec, self.folders, self.device = spec, folders, device  # of all that the spec names, by key
        self._stores: dict[str, LabelStore] = {}

    @functools.cached_property
    def dataset(self) -> PreparedDataset:
        """The prepared dataset."""
        return open_dataset(self.folders[self.spec.dataset])

    @functools.cached_property
    def test(self) -> tuple[Pixels, Ints]:
        """Test pictures (N, 3, S, S) uint8 and their classes."""
        split = TestSet.of(self.dataset.test.pixels, self.dataset.test.labels, self.device)
        return split.pixels, split.labels.cpu().numpy()

    def store(self, subject: Subject) -> LabelStore:
        """A subject's label store, of the dataset's classes."""
        if subject.labels not in self._stores:
            store = self._stores[subject.labels] = LabelStore(self.folders[subject.labels])
            store.require_classes(self.dataset.classes, f"dataset {self.folders[self.spec.dataset]}")
        return self._stores[subject.labels]

    def images(self, subject: Subject) -> tuple[torch.Tensor, Ints]:
        """Distilled images (N, 3, S, S) uint8 on the device and their classes (N,)."""
        store = self.store(subject)
        return torch.from_numpy(store.images()).to(self.device), image_labels(store)

    def student(self, subject: Subject) -> Probe:
        """A kept student after the subject's stage."""
        assert subject.run is not None
        folder, header = self.folders[subject.run], self.store(subject).header
        weights = student_file(folder / "students/seed-0", subject.stage)
        if not weights.exists():
            raise UserError(f"{weights} is missing; remove {weights.parent}, and the next run trains that student anew")
        arch = read_json(folder / "seed-0.json")["spec"]["arch"]
        model = build_model(arch, len(header.classes), header.size)
        load_weights(model, weights, arch)
        mean, std = self.statistics
        return Probe(laid_out(model, self.device).eval(), mean, std, header.size)

    @property
    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """What students' inputs are normalised with."""
        return tuple(self.spec.options["mean"]), tuple(self.spec.options["std"])

    def teacher(self, subject: Subject) -> Probe:
        """The teacher that a subject names, or the first of its store."""
        store = self.store(subject)
        folder = self.folders[subject.teacher] if subject.teacher else store.teacher(0)
        model, record = load_teacher(folder, store.header.classes, 0.0, self.device)
        return Probe(model, record["mean"], record["std"], record["size"])
