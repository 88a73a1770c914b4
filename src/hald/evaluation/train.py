"""Evaluation: train a student on a distilled set, phase by phase, and record its accuracy.

A run is a list of phases under one AdamW and one per-epoch schedule. Everything random is addressed by (seed, phase,
epoch), so a resumed run continues exactly where the killed one was.
"""

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hald.code_digests import versions
from hald.datasets.reader import open_dataset
from hald.errors import UserError
from hald.evaluation.batches import Batch
from hald.evaluation.cross_entropy import CrossEntropy
from hald.evaluation.hard_batches import HardBatches
from hald.evaluation.hard_temperature import temperature_of
from hald.evaluation.kept_students import student_file
from hald.evaluation.loss import Loss, learned, soft_loss
from hald.evaluation.phases import learning_rate, phase_at
from hald.evaluation.schedule import Watch, Watcher, schedule_of
from hald.evaluation.soft_pool import SoftPool
from hald.evaluation.spec import RunSpec
from hald.evaluation.student import Student, make_student
from hald.files import write_json
from hald.jobs.job import Job
from hald.jobs.log import Progress
from hald.jobs.signals import StopRequest
from hald.jobs.units import missing_units
from hald.labels.store import LabelStore
from hald.networks.weights import save_weights
from hald.numerics.accuracy import TestSet, accuracy
from hald.numerics.checkpoint import load_checkpoint, save_checkpoint, seed_epoch
from hald.numerics.device import setup
from hald.numerics.views import normalize
from hald.plain import to_dict
from hald.same_origin import require_same_data

CHECKPOINT_EPOCHS = 20


@dataclass(frozen=True)
class Material:
    """Everything that all seeds of a run share, on the device."""

    spec: RunSpec
    test: TestSet
    pool: SoftPool
    hard: HardBatches
    watcher: Watcher | None  # decides on the way when a phase ends
    device: torch.device
    label_bytes: int
    hard_temperature: float


@dataclass
class Course:
    """How a training has gone so far: all of its state beside the network's."""

    starts: list[int]  # first epoch of each phase that has begun or is known
    curve: list[dict[str, Any]] = field(default_factory=list)
    watched: list[Watch] = field(default_factory=list)  # by its watcher, after each epoch
    temperature: float = 1.0  # the student's own (LPQLD)


def make(job: Job[RunSpec]) -> None:
    """Train the students of a job that have no record yet, or are not kept and shall be."""
    spec = job.spec
    material = load_material(spec, job.made_from[spec.dataset], job.made_from[spec.labels], setup(spec.threads))
    for seed in missing_units(job, "seeds"):
        train_seed(job, material, seed)
    with contextlib.suppress(OSError):  # another job may train other seeds
        job.partial.rmdir()


def train_seed(job: Job[RunSpec], material: Material, seed: int) -> None:
    """Train the student of one seed and write its record.

    A record stays as it is if only the student is missing: it may be another machine's, and tables were made from it.
    """
    start, partial, record = time.monotonic(), job.partial / f"seed-{seed}", job.units[seed][0]
    students = job.folder / "students" / f"seed-{seed}" if seed < job.kept else None
    with StopRequest() as stop:
        found, share = train(material, seed, partial, stop, students)
    if not record.exists():
        job.note_time(start, material.device.type, share, f"seed-{seed}")
        write_json(record, {**job.identity, "versions": versions("torch", "torchvision", "numpy"), **found})
    shutil.rmtree(partial, ignore_errors=True)


def load_material(spec: RunSpec, data: Path, labels: Path, device: torch.device) -> Material:
    """Images and labels of the store `labels`, and the test split of the dataset `data`, checked to belong together."""
    dataset, store = open_dataset(data), LabelStore(labels)
    store.require_classes(dataset.classes, f"dataset {data}")
    header = store.header
    require_same_data(header.dataset_digest, f"label store {labels}", dataset.digest, f"dataset {data}")
    if header.batch != spec.batch or header.size != spec.size:
        raise UserError(
            f"label store {labels} has batches of {header.batch} at {header.size} px, "
            f"the run wants {spec.batch} at {spec.size} px; remove the store and run again"
        )
    images = torch.from_numpy(store.images()).to(device)
    if spec.ipc * spec.classes != len(images):
        raise UserError(
            f"label store {labels} holds {len(images)} images, "
            f"the run expects IPC {spec.ipc} x {spec.classes} classes; remove the store and run again"
        )
    targets = torch.arange(spec.classes, device=device).repeat_interleave(spec.ipc)
    schedule = schedule_of(spec)
    held = schedule.held_out(spec)
    out, trained = (torch.from_numpy(np.flatnonzero(which)).to(device) for which in (held, ~held))
    pool = SoftPool(store, spec, images, targets, held if held.any() else None)
    whole = normalize(images[out].float().div_(255), spec.mean, spec.std)
    return Material(
        spec,
        TestSet.of(dataset.test.pixels, dataset.test.labels, device),
        pool,
        HardBatches(spec, images[trained], targets[trained]),
        schedule.watcher(spec, whole, targets[out], lambda: pool.crops_of(held)),
        device,
        label_bytes(store, spec.pool),
        hard_temperature(spec, pool),
    )


def hard_temperature(spec: RunSpec, pool: SoftPool) -> float:
    """That of hard phases: as given, or where teacher and smoothed class labels are equally sure of themselves."""
    if spec.hard_temperature is not None:
        return spec.hard_temperature
    return temperature_of(pool.logits(), 1 - spec.smoothing + spec.smoothing / spec.classes)


def label_bytes(store: LabelStore, pool: int) -> int:
    """Measured bytes on disk of the stored batches that a run uses (of a view in part: its share)."""
    whole, rest = divmod(pool, store.header.batches)
    sizes = [sum(entry["bytes"] for entry in store.marked_files(view).values()) for view in range(whole + bool(rest))]
    return int(sum(sizes[:whole])) + (round(sizes[whole] * rest / store.header.batches) if rest else 0)


def train(
    material: Material, seed: int, partial: Path, stop: StopRequest, students: Path | None = None
) -> tuple[dict[str, Any], float]:
    """Train one student: its result record, and the share of the epochs that was done here (not before a kill).

    Its weights after every phase go to the folder `students`, if there is one, the last ones last.
    """
    spec = material.spec
    checkpoint = partial / "checkpoint.pt"
    student, course, first = begin(material, seed, checkpoint)
    ended = range(phase_at(course.starts, first)[0])
    if students and not all(student_file(students, number).exists() for number in ended):
        checkpoint.unlink()  # its training did not keep students yet
        student, course, first = begin(material, seed, checkpoint)
    progress = Progress(spec.epochs, f"seed {seed} epoch", done=first)
    for epoch in range(first, spec.epochs):
        train_epoch(material, student, course, seed, epoch)
        progress.step(f"top-1 {course.curve[-1]['top1']:.2f} %" if course.curve else "")
        if students and epoch + 1 in (*course.starts, spec.epochs):
            save_weights(student.model, student_file(students, phase_at(course.starts, epoch)[0]))
        if epoch + 1 < spec.epochs:
            if stop.save_now(epoch + 1, CHECKPOINT_EPOCHS):
                state = {"course": asdict(course), "scaler": student.scaler.state_dict()}
                save_checkpoint(checkpoint, student.model, student.optimizer, epoch + 1, **state)
            stop.check()
    return result(material, course, seed), (spec.epochs - first) / spec.epochs


def begin(material: Material, seed: int, checkpoint: Path) -> tuple[Student, Course, int]:
    """A student, what happened to it and how many epochs it had: as in the checkpoint, or at its beginning."""
    student = make_student(material.spec, seed, material.device)
    first, more = load_checkpoint(checkpoint, student.model, student.optimizer)
    student.scaler.load_state_dict(more.get("scaler", student.scaler.state_dict()))
    course = Course(**more["course"]) if more else Course(schedule_of(material.spec).starts(material.spec))
    return student, course, first


def result(material: Material, course: Course, seed: int) -> dict[str, Any]:
    """What a finished training is remembered by. The last epoch counts; the best one is for information."""
    last, best = course.curve[-1], max(course.curve, key=lambda point: point["top1"])
    return {
        "format": 3,
        "spec": to_dict(material.spec),
        "seed": seed,
        "top1": last["top1"],
        "top5": last["top5"],
        "best": {"epoch": best["epoch"], "top1": best["top1"]},
        "stage_starts": course.starts,
        "curve": course.curve,
        "label_bytes": material.label_bytes,
        "slc_effective": material.spec.slc,
        "hard_temperature": material.hard_temperature,
    }


def train_epoch(material: Material, student: Student, course: Course, seed: int, epoch: int) -> None:
    """One epoch of training; a point of the learning curve every few epochs and at the end."""
    spec = material.spec
    number, inside = phase_at(course.starts, epoch)
    kind = spec.stages[number].kind
    if inside == 0 and number and spec.handover == "reset":
        student.optimizer.state.clear()
    seed_epoch("evaluate", seed, epoch)
    for group in student.optimizer.param_groups:
        group["lr"] = learning_rate(spec, epoch)
    batches: Iterator[Batch]
    if kind == "soft":
        batches = material.pool.epoch(seed, number, inside)
        loss: Loss = soft_loss(spec.loss, epoch, course.temperature)
    else:
        batches, loss = material.hard.epoch(seed, epoch), CrossEntropy(material.hard_temperature)
    losses, logits, batch = student.steps(batches, loss)
    mean_loss = _mean_loss(losses, f"seed {seed}: epoch {epoch} ({kind} stage)", spec.lr)
    course.temperature = learned(loss, logits, batch, course.temperature)
    if material.watcher:
        soft = soft_loss(spec.loss, epoch, course.temperature)
        course.watched.append(material.watcher.watch(student.model, soft))
        if material.watcher.goes_on(course.starts, course.watched):
            course.starts.append(epoch + 1)
    if (epoch + 1) % spec.measure_every == 0 or epoch + 1 == spec.epochs:
        top1, top5 = accuracy(student.model, material.test, spec.mean, spec.std)
        point = {"epoch": epoch + 1, "stage": kind, "lr": learning_rate(spec, epoch), "loss": round(mean_loss, 8)}
        course.curve.append(point | {"top1": round(top1, 4), "top5": round(top5, 4)})


def _mean_loss(losses: Tensor, where: str, lr: float) -> float:
    """Mean of an epoch's losses: its one host synchronisation. A loss that is no number stops the training."""
    values = losses.tolist()
    bad = next((i for i, value in enumerate(values) if not np.isfinite(value)), None)
    if bad is not None:
        raise UserError(
            f"{where}: the loss is {values[bad]} in batch {bad} of {len(values)}; lower lr ({lr:g}). The last "
            f"checkpoint is kept"
        )
    return float(np.mean(values))
