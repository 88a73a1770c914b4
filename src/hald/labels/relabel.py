"""Relabel: the teachers' logits for every crop of every view, stored batch by stored batch."""

import contextlib
import time
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor, nn

from hald.code_digests import versions
from hald.errors import UserError
from hald.jobs.job import Job
from hald.jobs.units import missing_units
from hald.labels.codec import Logits
from hald.labels.layout import FORMAT, Header, create_store
from hald.labels.spec import LabelsSpec
from hald.labels.store import LabelStore
from hald.networks.batch_statistics import batch_statistics
from hald.numerics.device import setup
from hald.numerics.views import View, ViewSettings, draw_view, normalize, render_batches
from hald.plain import from_dict, to_dict
from hald.same_origin import require_same_data
from hald.squeeze.teacher import load_teacher
from hald.synthesis.image_set import open_set

FORWARD = 512  # crops per forward pass, in whole stored batches
FORWARD_CPU = 64  # as many as its cache holds


@dataclass(frozen=True)
class LabelTeacher:
    """A network, the weight of its logits, and the statistics it is fed with."""

    model: nn.Module
    weight: float
    mean: tuple[float, ...]
    std: tuple[float, ...]


def make(job: Job[LabelsSpec]) -> None:
    """Compute the views of a job that the store does not have yet, making the store first where needed."""
    start, computed = time.monotonic(), 0
    device = setup(job.spec.threads)
    if not (job.folder / "zarr.json").is_file():
        make_store(job, device)
    labeller = Labeller(LabelStore(job.folder), device)
    for view in missing_units(job, "views"):
        labeller.label(view)
        computed += 1
    job.note_time(start, device.type, computed)


class Labeller:
    """A store's own teachers and images on a device, ready to label its views."""

    def __init__(self, store: LabelStore, device: torch.device) -> None:
        self.store = store
        self.spec = from_dict(LabelsSpec, store.header.spec)
        self.settings = from_dict(ViewSettings, store.header.view_settings)
        self.images = torch.from_numpy(store.images()).to(device)
        self.teachers = []
        for number, weight in enumerate(self.spec.weights):
            model, record = load_teacher(store.teacher(number), store.header.classes, 0.0, device)
            self.teachers.append(LabelTeacher(model, weight, record["mean"], record["std"]))

    def label(self, view: int) -> None:
        """Compute and store a view, whose claim the caller holds."""
        drawn = draw_view(self.settings, view)
        self.store.write(view, drawn, self.logits(drawn))

    def logits(self, drawn: View) -> Logits:
        """The weighted sum of the teachers' logits for one view, (N, C) float32."""
        return label_view(self.teachers, self.images, drawn, self.spec)


def make_store(job: Job[LabelsSpec], device: torch.device) -> None:
    """A new store with copies of its images and its teachers, after checking that they belong together."""
    spec, folder = job.spec, job.made_from[job.spec.images]
    teachers = [job.made_from[key] for key in spec.teachers]
    images = open_set(folder)
    records = []
    for teacher in teachers:
        _, record = load_teacher(teacher, images.classes, job.floor, device)
        require_same_data(record["dataset_digest"], f"teacher {teacher}", images.dataset_digest, str(folder))
        records.append({name: record[name] for name in ("arch", "sha256", "top1", "mean", "std")})
    pixels = images.images()
    if len(pixels) != spec.count:
        raise UserError(f"image set {folder} has {len(pixels)} images, the plan expects {spec.count}; remove it")
    settings = ViewSettings(
        seed=spec.seed,
        count=spec.count,
        batch=spec.batch,
        source=(pixels.shape[2], pixels.shape[3]),
        size=spec.size,
        scale=spec.scale,
        ratio=spec.ratio,
        flip=spec.flip,
        mix=spec.mix,
        mix_alpha=spec.mix_alpha,
    )
    header = Header(
        format=FORMAT,
        **job.identity,
        classes=images.classes,
        count=spec.count,
        batch=spec.batch,
        size=spec.size,
        codec=spec.codec,
        top_k=spec.top_k,
        images_digest=images.digest,
        dataset_digest=images.dataset_digest,
        spec=to_dict(spec),
        view_settings=asdict(settings),
        teachers=records,
        versions=library_versions(),
    )
    create_store(job.folder, header, folder, teachers)


def library_versions() -> dict[str, str]:
    """Versions of the libraries that labels and bytes depend on."""
    return versions("torch", "zarr", "numpy", "numcodecs", "pcodec")


@torch.inference_mode()
def label_view(teachers: list[LabelTeacher], images: Tensor, drawn: View, spec: LabelsSpec) -> Logits:
    """The teachers' logits (N, C) for one view. Whole stored batches share a forward pass, a short one goes alone."""
    whole = spec.count // spec.batch * spec.batch
    crops = FORWARD_CPU if images.device.type == "cpu" else FORWARD
    step = max(crops // spec.batch, 1) * spec.batch
    bounds = [(i, min(i + step, whole)) for i in range(0, whole, step)]
    if whole < spec.count:
        bounds.append((whole, spec.count))
    parts = []
    for first, last in bounds:
        rows = np.arange(first, last)
        pixels = render_batches(images, drawn, rows, rows // spec.batch, spec.size)
        parts.append(sum_logits(teachers, pixels, spec).cpu())
    return torch.cat(parts).numpy()


def sum_logits(teachers: list[LabelTeacher], pixels: Tensor, spec: LabelsSpec) -> Tensor:
    """Weighted sum of the teachers' logits for whole stored batches, each with its own BN statistics in batch mode."""
    groups = max(len(pixels) // spec.batch, 1)
    total = torch.zeros((), device=pixels.device)
    for teacher in teachers:
        with batch_statistics(teacher.model, groups) if spec.bn_mode == "batch" else contextlib.nullcontext():
            total = total + teacher.weight * teacher.model(normalize(pixels, teacher.mean, teacher.std)).float()
    return total
