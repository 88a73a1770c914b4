"""Relabel: the teacher's logits for every crop of every view, stored batch by stored batch."""

import contextlib
import importlib.metadata
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hald.errors import UserError
from hald.files import read_json
from hald.jobs import Progress, StopRequest, log, write_timing
from hald.labels.store import FORMAT, Header, LabelStore, create_store
from hald.models.bn import batch_statistics
from hald.provenance import require_same_classes
from hald.specs.base import from_dict, to_dict
from hald.specs.labels import LabelsSpec
from hald.synthesis.imageset import open_set
from hald.teacher import load_teacher
from hald.views import View, ViewSettings, draw_view, normalize, render_batches

FORWARD = 512  # crops per forward pass, in whole stored batches


@dataclass(frozen=True)
class Places:
    """Where labels come from and go to. Images and teacher are only looked at to make a store that is not there."""

    images: Path
    teacher: Path
    store: Path


def relabel(spec: LabelsSpec, places: Places, views: range, floor: float, device: torch.device) -> None:
    """Compute those of `views` that the store does not have yet, making the store first where needed."""
    start = time.monotonic()
    if not (places.store / "zarr.json").is_file():
        _make_store(spec, places, floor, device)
    store = LabelStore(places.store)
    missing = [view for view in views if not store.has(view)]
    log.info("%d of views %d-%d to compute, %d crops each", len(missing), views.start, views.stop - 1, spec.count)
    teacher, record = load_teacher(places.store / "teacher", store.header.classes, 0.0, device)
    settings = from_dict(ViewSettings, store.header.view_settings)
    images = torch.from_numpy(store.images()).to(device)
    progress = Progress(len(missing), "views")
    with StopRequest() as stop:
        for view in missing:
            drawn = draw_view(settings, view)
            logits = label_view(teacher, images, drawn, spec, (record["mean"], record["std"]))
            store.write(view, drawn, logits)
            progress.step()
            stop.check()
    kind, crops = spec.effort
    timing = places.store / "timings" / f"{views.start:05d}.json"
    write_timing(timing, time.monotonic() - start, device.type, kind, crops * len(missing))


def _make_store(spec: LabelsSpec, places: Places, floor: float, device: torch.device) -> None:
    """A new store with copies of its images and its teacher, after checking that they belong together."""
    images = open_set(places.images)
    teacher = read_json(places.teacher / "teacher.json")
    require_same_classes(
        teacher["classes"], f"teacher {places.teacher}", images.classes, f"image set {places.images}",
        "Make the image set with this teacher's dataset.",
    )  # fmt: skip
    load_teacher(places.teacher, images.classes, floor, device)
    pixels = images.images()
    if len(pixels) != spec.count:
        raise UserError(f"image set {places.images} has {len(pixels)} images, the plan expects {spec.count}; remove it")
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
        classes=images.classes,
        count=spec.count,
        batch=spec.batch,
        size=spec.size,
        codec=spec.codec,
        images_digest=images.digest,
        spec=to_dict(spec),
        view_settings=asdict(settings),
        teacher={name: teacher[name] for name in ("arch", "sha256", "top1", "mean", "std")},
        versions={name: importlib.metadata.version(name) for name in ("torch", "zarr", "numpy")},
    )
    create_store(places.store, header, places.images, places.teacher)


@torch.inference_mode()
def label_view(
    teacher: nn.Module,
    images: Tensor,
    drawn: View,
    spec: LabelsSpec,
    statistics: tuple[tuple[float, ...], tuple[float, ...]],
) -> NDArray[np.float32]:
    """The teacher's logits (N, C) for one view. Whole stored batches share a forward pass, a short one goes alone."""
    whole = spec.count // spec.batch * spec.batch
    step = max(FORWARD // spec.batch, 1) * spec.batch
    bounds = [(i, min(i + step, whole)) for i in range(0, whole, step)]
    if whole < spec.count:
        bounds.append((whole, spec.count))
    parts = []
    for first, last in bounds:
        rows = np.arange(first, last)
        x = normalize(render_batches(images, drawn, rows, rows // spec.batch, spec.size), *statistics)
        mode = batch_statistics(teacher, spec.batch) if spec.bn_mode == "batch" else contextlib.nullcontext()
        with mode:
            parts.append(teacher(x).float().cpu())
    return torch.cat(parts).numpy()
