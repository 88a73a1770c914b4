"""LPLD's class-wise BN statistics: mean and variance of every BN input over the training images of each class.

One pass over the training set with training augmentation, the teacher in eval mode. `exact` adds up count, sum and sum
of squares in float64. `ema0.1` follows the released code: from mean 0 and variance 1, class statistic <- 0.9 of itself
+ 0.1 of the class's mean and biased variance in the batch, which remembers only the last few batches of a class.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from hald.datasets.reader import PreparedDataset, open_dataset
from hald.datasets.training_crops import CropRequest, Crops
from hald.errors import UserError
from hald.files import file_digest, read_json, write_atomic, write_buffered, write_json
from hald.jobs.job import Job
from hald.jobs.log import Progress, log
from hald.jobs.signals import StopRequest
from hald.numerics.device import setup
from hald.numerics.random_streams import permutation, uniforms
from hald.numerics.views import CROP_WIDTH, normalize
from hald.plain import to_dict
from hald.same_origin import require_same_classes, require_same_data
from hald.squeeze.teacher import load_teacher
from hald.synthesis.optimiser.bn_matching import Targets, bn_layers
from hald.synthesis.spec import StatisticsSpec

MOMENTUM = 0.1
SAVE_BATCHES = 1000


class ClassMoments:
    """Per-class moments of one BN layer's input, filled batch by batch."""

    def __init__(self, classes: int, channels: int, kind: str, device: torch.device) -> None:
        self.kind, self.classes = kind, classes
        self.count = torch.zeros(classes, dtype=torch.float64, device=device)
        self.sum = torch.zeros(classes, channels, dtype=torch.float64, device=device)
        self.square = torch.zeros_like(self.sum)
        self.mean, self.var = torch.zeros_like(self.sum), torch.ones_like(self.sum)  # of the moving average

    def add(self, x: Tensor, labels: Tensor) -> None:
        """Add a batch: BN inputs (n, C, H, W) of images with `labels` (n,)."""
        count = torch.zeros_like(self.count).index_add_(0, labels, torch.ones_like(labels, dtype=torch.float64))
        count *= x[0, 0].numel()
        total = torch.zeros_like(self.sum).index_add_(0, labels, x.sum(dim=(2, 3), dtype=torch.float64))
        square = torch.zeros_like(self.sum).index_add_(
            0, labels, x.float().square().sum(dim=(2, 3), dtype=torch.float64)
        )
        if self.kind == "exact":
            self.count += count
            self.sum += total
            self.square += square
            return
        seen = (count > 0)[:, None]
        mean, var = _moments(count, total, square)
        self.mean = torch.where(seen, (1 - MOMENTUM) * self.mean + MOMENTUM * mean, self.mean)
        self.var = torch.where(seen, (1 - MOMENTUM) * self.var + MOMENTUM * var, self.var)

    def state(self) -> dict[str, Tensor]:
        """All sums so far."""
        return {name: getattr(self, name) for name in ("count", "sum", "square", "mean", "var")}

    def result(self) -> tuple[Tensor, Tensor]:
        """Mean and biased variance of every class, (classes, C) float32 each."""
        found = _moments(self.count, self.sum, self.square) if self.kind == "exact" else (self.mean, self.var)
        return found[0].float(), found[1].float()


def _moments(count: Tensor, total: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
    mean = total / count.clamp(min=1)[:, None]
    return mean, (square / count.clamp(min=1)[:, None] - mean.square()).clamp(min=0)


def _save(unfinished: Path, done: int, found: list[ClassMoments]) -> None:
    """Keep the sums over the first `done` batches."""
    state = {"done": done, "moments": [moments.state() for moments in found]}
    write_buffered(unfinished, lambda buffer: torch.save(state, buffer))


def _load(unfinished: Path | None, found: list[ClassMoments]) -> int:
    """Put kept sums back; the number of batches that are in them (0: none, or of another network)."""
    if unfinished is None or not unfinished.is_file():
        return 0
    try:
        kept = torch.load(unfinished, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged disk; torch names no one class of errors for it
        log.warning("%s cannot be read (%s): starting from the beginning", unfinished, error)
        return 0
    for moments, state in zip(found, kept["moments"], strict=True):
        for name, value in state.items():
            setattr(moments, name, value.to(moments.sum.device))
    log.info("goes on after batch %d", kept["done"])
    return int(kept["done"])


@torch.inference_mode()
def collect(
    spec: StatisticsSpec,
    dataset: PreparedDataset,
    model: nn.Module,
    statistics: tuple[tuple[float, ...], tuple[float, ...]],
    device: torch.device,
    workers: int = 0,
    unfinished: Path | None = None,
) -> list[tuple[Tensor, Tensor]]:
    """One pass over the training set: mean and variance (classes, channels) of every BN layer's input.

    With `unfinished`, sums so far are kept in that file now and then, and a pass that was cut short goes on from it.
    """
    count = len(dataset.train)
    order = permutation("statistics-order", spec.seed, 0, count)
    draws = uniforms("statistics-crops", spec.seed, 0, count, CROP_WIDTH + 1)
    requests = [
        CropRequest(order[i : i + spec.batch], d[:, :CROP_WIDTH], d[:, CROP_WIDTH] < spec.flip)
        for i in range(0, count, spec.batch)
        for d in [draws[i : i + spec.batch]]
    ]
    labels = torch.from_numpy(dataset.train.labels).to(device)
    layers = bn_layers(model)
    found = [ClassMoments(spec.classes, layer.num_features, spec.kind, device) for layer in layers]
    now: list[Tensor] = []
    for layer, moments in zip(layers, found, strict=True):
        layer.register_forward_pre_hook(lambda _, inputs, m=moments: m.add(inputs[0], now[0]))
    crops = Crops(dataset.train, spec.size, spec.scale, spec.ratio, workers, device)
    first = _load(unfinished, found)
    progress = Progress(len(requests), "batches", done=first)
    with StopRequest() as stop:
        for done, (request, pixels) in enumerate(
            zip(requests[first:], crops.batches(requests[first:]), strict=True), start=first + 1
        ):
            now[:] = [labels[torch.from_numpy(request.index).to(device)]]
            model(normalize(pixels, *statistics))
            progress.step()
            if done < len(requests):
                if unfinished and stop.save_now(done, SAVE_BATCHES):
                    _save(unfinished, done, found)
                stop.check()
    return [moments.result() for moments in found]


def make(job: Job[StatisticsSpec]) -> None:
    """Write statistics.safetensors and, last, statistics.json."""
    start, spec, folder = time.monotonic(), job.spec, job.folder
    device = setup(spec.threads)
    dataset_folder, teacher_folder = job.made_from[spec.dataset], job.made_from[spec.teacher]
    dataset = open_dataset(dataset_folder)
    model, record = load_teacher(teacher_folder, dataset.classes, job.floor, device)
    require_same_data(record["dataset_digest"], f"teacher {teacher_folder}", dataset.digest, str(dataset_folder))
    if not bn_layers(model):
        raise UserError(f"LPLD needs BN statistics, and {record['arch']} has no BN layers; name another teacher")
    unfinished = folder / "unfinished.pt"
    found = collect(spec, dataset, model, (record["mean"], record["std"]), device, job.workers, unfinished)
    tensors = {
        f"{i}.{name}": t.cpu() for i, pair in enumerate(found) for name, t in zip(("mean", "var"), pair, strict=True)
    }
    write_atomic(folder / "statistics.safetensors", lambda temporary: save_file(tensors, temporary))
    about = {
        "format": 1,
        "classes": dataset.classes,
        "dataset_digest": dataset.digest,
        "teacher": record["sha256"],
        "layers": len(found),
        "sha256": file_digest(folder / "statistics.safetensors"),
        "per_class": np.bincount(dataset.train.labels, minlength=len(dataset.classes)).tolist(),
        "spec": to_dict(spec),
    }
    job.note_time(start, device.type)
    write_json(folder / "statistics.json", about)
    for remains in (unfinished, *folder.glob(f".{unfinished.name}.*")):  # also what a kill left
        remains.unlink(missing_ok=True)


@dataclass(frozen=True)
class ClassStatistics:
    """Finished statistics on a device: per layer, mean and variance (classes, channels)."""

    layers: list[tuple[Tensor, Tensor]]

    def of_class(self, label: int) -> Targets:
        """Targets of one class."""
        return [(mean[label], var[label]) for mean, var in self.layers]


def load_statistics(folder: Path, dataset: PreparedDataset, device: torch.device) -> ClassStatistics:
    """Read finished statistics of this dataset."""
    about = read_json(folder / "statistics.json")
    require_same_classes(about["classes"], f"statistics {folder}", dataset.classes, "the dataset", f"Remove {folder}.")
    require_same_data(about["dataset_digest"], f"statistics {folder}", dataset.digest, "the dataset")
    if file_digest(folder / "statistics.safetensors") != about["sha256"]:
        raise UserError(f"statistics {folder} are damaged; remove that folder and run again")
    tensors = load_file(folder / "statistics.safetensors", device=str(device))
    return ClassStatistics([(tensors[f"{i}.mean"], tensors[f"{i}.var"]) for i in range(about["layers"])])
