"""Squeeze: a teacher from scratch, from torchvision's weights or from a file; measured, recorded, resumable."""

import math
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hald.checkpoint import load_checkpoint, save_checkpoint, seed_epoch
from hald.data.crops import CropRequest, Crops
from hald.data.reader import PreparedDataset, open_dataset
from hald.draws import permutation, uniforms
from hald.errors import UserError
from hald.files import file_digest, publish_dir, write_json
from hald.jobs import Progress, StopRequest, log, write_timing
from hald.measure import TestSet, accuracy
from hald.models.build import build_model
from hald.models.layout import laid_out
from hald.models.weights import load_weights, save_weights
from hald.specs.teacher import Recipe, TeacherSpec
from hald.views import CROP_WIDTH, normalize

CHECKPOINT_EPOCHS = 10


@dataclass(frozen=True)
class Places:
    """Where a teacher comes from and goes to."""

    dataset: Path
    weights: Path | None  # file for source: torchvision or path
    target: Path
    partial: Path


def squeeze(spec: TeacherSpec, places: Places, device: torch.device, workers: int) -> None:
    """Make the teacher and write teacher.safetensors and teacher.json into `places.target`."""
    start, done = time.monotonic(), 1.0
    dataset = open_dataset(places.dataset)
    torch.manual_seed(spec.seed)
    model = laid_out(build_model(spec.arch, spec.classes, spec.size), device)
    if spec.source == "train":
        done = _train(model, spec, dataset, places.partial, device, workers)
    else:
        assert places.weights is not None
        if not places.weights.is_file():
            raise UserError(
                f"teacher weights {places.weights} do not exist; correct `path` of the teacher in the experiment"
            )
        load_weights(model, places.weights, spec.arch)
    top1, top5 = accuracy(model, TestSet.of(dataset.test, device), spec.mean, spec.std)
    log.info("teacher %s: top-1 %.2f %%, top-5 %.2f %% on %d test images", spec.arch, top1, top5, len(dataset.test))
    finished = places.partial / "teacher"
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
    kind, work = spec.effort
    write_timing(finished / "timing.json", time.monotonic() - start, device.type, kind, work * done)
    publish_dir(finished, places.target, "teacher.json")
    shutil.rmtree(places.partial, ignore_errors=True)


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
