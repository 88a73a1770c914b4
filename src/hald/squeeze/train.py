"""Squeeze: a teacher from scratch, from torchvision's weights or from a file; measured, recorded, resumable."""

import math
import shutil
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hald.datasets.reader import PreparedDataset, open_dataset
from hald.datasets.training_crops import CropRequest, Crops
from hald.errors import UserError
from hald.files import file_digest, publish_dir, write_json
from hald.jobs.job import Job
from hald.jobs.log import Progress, log
from hald.jobs.signals import StopRequest
from hald.networks.build import build_model
from hald.networks.memory_layout import laid_out
from hald.networks.weights import load_weights, save_weights
from hald.numerics.accuracy import TestSet, accuracy
from hald.numerics.checkpoint import load_checkpoint, save_checkpoint, seed_epoch
from hald.numerics.device import setup
from hald.numerics.random_streams import permutation, uniforms
from hald.numerics.views import CROP_WIDTH, normalize
from hald.squeeze.spec import Recipe, TeacherSpec, WeightsSpec

CHECKPOINT_EPOCHS = 10


def make(job: Job[TeacherSpec]) -> None:
    """Make the teacher: teacher.safetensors and, last, teacher.json."""
    start, done, spec = time.monotonic(), 1.0, job.spec
    device = setup(spec.threads)
    dataset = open_dataset(job.made_from[spec.dataset])
    torch.manual_seed(spec.seed)
    model = laid_out(build_model(spec.arch, spec.classes, spec.size), device)
    if spec.source == "train":
        done = _train(model, spec, dataset, job.partial, device, job.workers)
    else:
        weights = _weights(job)
        if not weights.is_file():
            raise UserError(f"teacher weights {weights} do not exist; correct `path` of the teacher in the experiment")
        load_weights(model, weights, spec.arch)
    top1, top5 = accuracy(model, TestSet.of(dataset.test.pixels, dataset.test.labels, device), spec.mean, spec.std)
    log.info("teacher %s: top-1 %.2f %%, top-5 %.2f %% on %d test images", spec.arch, top1, top5, len(dataset.test))
    finished = job.partial / "teacher"
    finished.mkdir(parents=True, exist_ok=True)
    save_weights(model, finished / "teacher.safetensors")
    record = {
        "format": 1,
        "arch": spec.arch,
        "source": spec.source,
        "classes": dataset.classes,
        "size": spec.size,
        "mean": spec.mean,
        "std": spec.std,
        "top1": round(top1, 4),
        "top5": round(top5, 4),
        "dataset_digest": dataset.digest,
        "sha256": file_digest(finished / "teacher.safetensors"),
    }
    write_json(finished / "teacher.json", record)
    job.note_time(start, device.type, done, folder=finished)
    publish_dir(finished, job.folder, "teacher.json")
    shutil.rmtree(job.partial, ignore_errors=True)


def _weights(job: Job[TeacherSpec]) -> Path:
    """The file that a teacher which is not trained comes from: the user's own, or downloaded."""
    if job.spec.path:
        return Path(job.spec.path)
    assert job.spec.weights is not None
    name = WeightsSpec(job.spec.arch, job.spec.weights).name
    return job.made_from[name] / f"{name}.safetensors"


def _train(
    model: nn.Module, spec: TeacherSpec, dataset: PreparedDataset, partial: Path, device: torch.device, workers: int
) -> float:
    """Train with the recipe, from the last checkpoint if there is one; the share of the epochs done here."""
    recipe = spec.recipe
    assert recipe is not None, "source: train has a recipe"
    optimizer = _optimizer(model, recipe)
    labels = torch.from_numpy(dataset.train.labels).to(device)
    crops = Crops(dataset.train, spec.size, spec.scale, spec.ratio, workers, device)
    checkpoint = partial / "checkpoint.pt"
    first, _ = load_checkpoint(checkpoint, model, optimizer)
    progress = Progress(recipe.epochs, "epoch", done=first)
    with StopRequest() as stop:
        for epoch in range(first, recipe.epochs):
            for group in optimizer.param_groups:
                group["lr"] = recipe.lr * schedule(epoch, recipe.epochs, recipe.warmup)
            seed_epoch("squeeze", spec.seed, epoch)
            loss = _epoch(model, optimizer, spec, recipe, crops, labels, epoch)
            progress.step(f"loss {loss:.3f}")
            if epoch + 1 < recipe.epochs:
                if stop.save_now(epoch + 1, CHECKPOINT_EPOCHS):
                    save_checkpoint(checkpoint, model, optimizer, epoch + 1)
                stop.check()
    return (recipe.epochs - first) / recipe.epochs


def schedule(epoch: int, epochs: int, warmup: int) -> float:
    """Factor of the rate: linear from 0.01 over `warmup` epochs, then a cosine to zero over the rest."""
    if epoch < warmup:
        return 0.01 + 0.99 * epoch / warmup
    return 0.5 * (1 + math.cos(math.pi * (epoch - warmup) / (epochs - warmup)))


def _optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            model.parameters(), lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay
        )
    kind = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
    return kind(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)


def _epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    spec: TeacherSpec,
    recipe: Recipe,
    crops: Crops,
    labels: Tensor,
    epoch: int,
) -> float:
    """One pass over the training images in a keyed order; the mean loss. A last batch of one image is left out."""
    model.train()
    count, batch = len(labels), recipe.batch
    order = permutation("squeeze-order", spec.seed, epoch, count)
    draws = uniforms("squeeze-crop", spec.seed, epoch, count, CROP_WIDTH + 1)
    starts = range(0, count - (count % batch == 1), batch)
    requests = [
        CropRequest(order[i : i + batch], draws[i : i + batch, :CROP_WIDTH], draws[i : i + batch, -1] < spec.flip)
        for i in starts
    ]
    source = crops.batches(requests) if recipe.crop == "resized" else crops.padded(requests, recipe.padding)
    total = torch.zeros((), device=labels.device)
    for request, pixels in zip(requests, source, strict=True):
        x = normalize(pixels, spec.mean, spec.std)
        loss = F.cross_entropy(model(x), labels[torch.from_numpy(request.index).to(labels.device)])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    mean = float(total) / len(requests)
    if not np.isfinite(mean):
        raise UserError(f"the teacher's loss is {mean} in epoch {epoch}; lower recipe.lr ({recipe.lr:g})")
    return mean
