"""Evaluation: train a student on a distilled set, stage by stage, and record its accuracy.

A run is a list of stages under one AdamW and one per-epoch schedule. Everything random is addressed by (seed, stage,
epoch), so a resumed run continues exactly where the killed one was.
"""

import math
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hald.checkpoint import load_checkpoint, save_checkpoint, seed_epoch
from hald.data.reader import PreparedDataset, open_dataset
from hald.errors import UserError
from hald.files import write_json
from hald.jobs import Progress, StopRequest, write_timing
from hald.labels.store import LabelStore
from hald.measure import accuracy
from hald.models.build import build_model
from hald.provenance import require_same_data, versions
from hald.specs.base import Identity, to_dict
from hald.specs.run import RunSpec
from hald.train.batches import Batch
from hald.train.hard import HardBatches
from hald.train.losses import HardLoss, Loss, SoftLoss
from hald.train.pool import SoftPool

CHECKPOINT_EPOCHS = 20
CURVE_EPOCHS = 10


@dataclass(frozen=True)
class Places:
    """Where a run's data comes from and its records go to."""

    dataset: Path
    store: Path
    records: Path
    partial: Path


@dataclass(frozen=True)
class Material:
    """Everything that all seeds of a run share, on the device."""

    spec: RunSpec
    dataset: PreparedDataset
    pool: SoftPool
    hard: HardBatches
    device: torch.device
    label_bytes: int


def evaluate(spec: RunSpec, seeds: list[int], places: Places, device: torch.device, identity: Identity) -> None:
    """Train one student per seed that has no record yet."""
    material = _load(spec, places, device)
    with StopRequest() as stop:
        for seed in seeds:
            record = places.records / f"seed-{seed}.json"
            if record.exists():
                continue
            start = time.monotonic()
            result, share = train(material, seed, places.partial / f"seed-{seed}", stop)
            kind, work = spec.effort
            timing = record.with_suffix(".timing.json")
            write_timing(timing, time.monotonic() - start, device.type, kind, work * share)
            write_json(record, {**asdict(identity), "versions": versions("torch", "torchvision", "numpy"), **result})
            stop.check()
    shutil.rmtree(places.partial, ignore_errors=True)


def _load(spec: RunSpec, places: Places, device: torch.device) -> Material:
    """Images and labels of the store, and the test split, checked to belong together."""
    dataset, store = open_dataset(places.dataset), LabelStore(places.store)
    store.require_classes(dataset.classes, f"dataset {places.dataset}")
    header = store.header
    require_same_data(header.dataset_digest, f"label store {places.store}", dataset.digest, f"dataset {places.dataset}")
    if header.batch != spec.batch or header.size != spec.size:
        raise UserError(
            f"label store {places.store} has batches of {header.batch} at {header.size} px, "
            f"the run wants {spec.batch} at {spec.size} px"
        )
    images = torch.from_numpy(store.images()).to(device)
    labels = torch.arange(len(dataset.classes), device=device).repeat_interleave(spec.ipc)
    if len(labels) != len(images):
        raise UserError(
            f"label store {places.store} holds {len(images)} images, "
            f"the run expects IPC {spec.ipc} x {spec.classes} classes"
        )
    pool = SoftPool(store, spec, images)
    return Material(spec, dataset, pool, HardBatches(spec, images, labels), device, label_bytes(store, spec.pool))


def label_bytes(store: LabelStore, pool: int) -> int:
    """Measured bytes on disk of the stored batches that a run uses (of a view in part: its share)."""
    whole, rest = divmod(pool, store.header.batches)
    sizes = [sum(entry["bytes"] for entry in store.marked_files(view).values()) for view in range(whole + bool(rest))]
    return int(sum(sizes[:whole])) + (round(sizes[whole] * rest / store.header.batches) if rest else 0)


def train(material: Material, seed: int, partial: Path, stop: StopRequest) -> tuple[dict[str, Any], float]:
    """Train one student: its result record, and the share of the epochs that was done here (not before a kill)."""
    spec = material.spec
    torch.manual_seed(seed)
    model = build_model(spec.arch, spec.classes, spec.size).to(material.device)
    optimizer = make_optimizer(model, spec)
    checkpoint = partial / "checkpoint.pt"
    first, more = load_checkpoint(checkpoint, model, optimizer)
    curve: list[dict[str, Any]] = list(more.get("curve", []))
    progress = Progress(spec.epochs, f"seed {seed} epoch", done=first)
    for epoch in range(first, spec.epochs):
        curve += _epoch(material, model, optimizer, seed, epoch)
        progress.step(f"top-1 {curve[-1]['top1']:.2f} %" if curve else "")
        if epoch + 1 < spec.epochs:
            if stop.signal or (epoch + 1) % CHECKPOINT_EPOCHS == 0:
                save_checkpoint(checkpoint, model, optimizer, epoch + 1, curve=curve)
            stop.check()
    record = {
        "format": 1,
        "spec": to_dict(spec),
        "seed": seed,
        "top1": curve[-1]["top1"],
        "top5": curve[-1]["top5"],
        "best": max(point["top1"] for point in curve),
        "curve": curve,
        "label_bytes": material.label_bytes,
        "slc_effective": spec.slc,
    }
    return record, (spec.epochs - first) / spec.epochs


def make_optimizer(model: nn.Module, spec: RunSpec) -> torch.optim.AdamW:
    """AdamW that decays weights of more than one dimension only (biases and BN are left alone)."""
    named = list(model.named_parameters())
    decayed = [p for name, p in named if "weight" in name and p.ndim > 1]
    rest = [p for name, p in named if not ("weight" in name and p.ndim > 1)]
    groups = [{"params": decayed, "weight_decay": spec.weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=spec.lr, fused=True)


def learning_rate(spec: RunSpec, epoch: int) -> float:
    """lr0 / 2 (1 + cos(pi e / (E eta))): eta 1 ends at zero, eta 2 at half the rate. Stages do not restart it."""
    return spec.lr * 0.5 * (1 + math.cos(math.pi * epoch / (spec.epochs * spec.eta)))


def stage_at(spec: RunSpec, epoch: int) -> tuple[int, int]:
    """Stage number of an epoch, and the epoch's number inside it."""
    for number, stage in enumerate(spec.stages):
        if epoch < stage.epochs:
            return number, epoch
        epoch -= stage.epochs
    raise AssertionError("epoch beyond the last stage")


def _epoch(
    material: Material, model: nn.Module, optimizer: torch.optim.Optimizer, seed: int, epoch: int
) -> list[dict[str, Any]]:
    """One epoch of training; a point of the learning curve every ten epochs and at the end."""
    spec = material.spec
    number, inside = stage_at(spec, epoch)
    kind = spec.stages[number].kind
    if inside == 0 and number and spec.handover == "reset":
        optimizer.state.clear()
    seed_epoch("evaluate", seed, epoch)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(spec, epoch)
    batches: Iterator[Batch]
    if kind == "soft":
        batches = material.pool.epoch(seed, number, inside)
        loss_function: Loss = SoftLoss(spec.temperature, spec.kd_scale == "T2")
    else:
        batches, loss_function = material.hard.epoch(seed, epoch), HardLoss()
    loss = _steps(model, optimizer, batches, loss_function)
    if not math.isfinite(loss):
        raise UserError(f"seed {seed}: the loss is {loss} in epoch {epoch} ({kind} stage); lower lr ({spec.lr:g})")
    if (epoch + 1) % CURVE_EPOCHS and epoch + 1 < spec.epochs:
        return []
    top1, top5 = accuracy(model, material.dataset.test, spec.mean, spec.std, material.device)
    point = {"epoch": epoch + 1, "stage": kind, "lr": learning_rate(spec, epoch), "loss": round(loss, 8)}
    return [point | {"top1": round(top1, 4), "top5": round(top5, 4)}]


def _steps(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterator[Batch], loss_function: Loss) -> float:
    """Optimiser steps over the batches; mean loss, with one host synchronisation at the end."""
    model.train()
    total, count = torch.zeros(()), 0
    for batch in batches:
        loss = loss_function(model(batch.x), batch.target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total = total.to(loss.device) + loss.detach()
        count += 1
    return float(total) / max(count, 1)
