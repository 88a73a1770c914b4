"""What a stage hands to the next: how far AdamW moves the weights in every step, and how large the logits are.

Without T^2 the gradients of hard stages are about a thousand times those of soft ones. Right after a change to hard
labels the second moment is too small for them, and steps are too long; after the change back it is too large, and steps
are too short, for about 1 / (1 - beta2) steps. Soft stages pull the student's logits to the size of the teacher's,
hard ones to the size that smoothed labels ask for.
"""

import itertools
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hald.analysis.subjects import Found, Lab
from hald.evaluation.schedule import schedule_of
from hald.evaluation.spec import RunSpec
from hald.evaluation.student import Student, make_student
from hald.evaluation.train import Course, Material, load_material, train_epoch
from hald.plain import from_dict

FIRST = 20  # steps after a boundary that are looked at by themselves


@dataclass(frozen=True)
class Updates:
    """Root mean square of every step's change, in units of the learning rate (a settled Adam: about one or less).

    Stages are named stage-0, stage-1 ..; of each there is the mean of its `first` steps, of `all`, of the `end`.
    """

    size: list[float]  # one per step
    logits: list[float]  # size of the student's logits in every step
    teacher: float  # size of the teacher's logits, from the stored labels
    steps_per_epoch: int
    starts: list[int]  # first epoch of each stage
    by_stage: dict[str, dict[str, float]]
    logits_by_stage: dict[str, dict[str, float]]
    top1: float  # of the student at the end, in percent


def measure(lab: Lab, number: int) -> Found:
    """Size of every optimiser step of a staged training, and of the logits."""
    subject, options = lab.spec.subjects[number], lab.spec.options
    spec = from_dict(RunSpec, options["runs"][number])
    material = load_material(spec, lab.folders[lab.spec.dataset], lab.folders[subject.labels], lab.device)
    return asdict(update_sizes(material, options["seed"]))


def update_sizes(material: Material, seed: int) -> Updates:
    """Train one student as the evaluation does, and measure every step."""
    spec = material.spec
    student = make_student(spec, seed, material.device)
    course = Course(schedule_of(spec).starts(spec))
    moved, grown = measure_steps(student), measure_logits(student)
    for epoch in range(spec.epochs):
        train_epoch(material, student, course, seed, epoch)
    sizes, logits = (torch.stack(series).tolist() for series in (moved, grown))
    per_epoch = len(sizes) // spec.epochs
    bounds = [start * per_epoch for start in (*course.starts, spec.epochs)]
    return Updates(
        size=[round(value, 5) for value in sizes],
        logits=[round(value, 4) for value in logits],
        teacher=round(float(size_of(material.pool.logits())), 4),
        steps_per_epoch=per_epoch,
        starts=course.starts,
        by_stage=_by_stage(sizes, bounds),
        logits_by_stage=_by_stage(logits, bounds),
        top1=course.curve[-1]["top1"],
    )


def measure_steps(student: Student) -> list[Tensor]:
    """A list that every step of the student's optimiser adds its size to, in units of the rate, still on the device."""
    sizes: list[Tensor] = []
    before: list[Tensor] = []
    parameters = [p for group in student.optimizer.param_groups for p in group["params"]]
    count = sum(p.numel() for p in parameters)

    def remember(*_: Any) -> None:
        before[:] = [p.detach().clone() for p in parameters]

    def compare(*_: Any) -> None:
        moved = torch._foreach_norm([p.detach() - old for p, old in zip(parameters, before, strict=True)])
        rate = student.optimizer.param_groups[0]["lr"]
        sizes.append(torch.stack(moved).norm() / (count**0.5 * rate))

    student.optimizer.register_step_pre_hook(remember)
    student.optimizer.register_step_post_hook(compare)
    return sizes


def measure_logits(student: Student) -> list[Tensor]:
    """A list that every forward pass of a training step adds the size of its logits to, still on the device."""
    sizes: list[Tensor] = []

    def look(model: nn.Module, _: Any, logits: Tensor) -> None:
        if model.training:
            sizes.append(size_of(logits.detach()))

    student.model.register_forward_hook(look)
    return sizes


def size_of(logits: Tensor) -> Tensor:
    """Root mean square of logits (n, C) around the mean of their row, mean over the rows: constants say nothing.

    Of labels that keep their largest logits alone (the others are -inf), that of those.
    """
    kept = logits.isfinite()
    count = kept.sum(dim=1, keepdim=True)
    mean = logits.float().where(kept, 0).sum(dim=1, keepdim=True) / count
    return ((logits.float() - mean).where(kept, 0).square().sum(dim=1, keepdim=True) / count).sqrt().mean()


def _by_stage(series: list[float], bounds: list[int]) -> dict[str, dict[str, float]]:
    stages = enumerate(itertools.pairwise(bounds))
    return {f"stage-{number}": _means(series[a:b]) for number, (a, b) in stages}


def _means(sizes: list[float]) -> dict[str, float]:
    parts = {"first": sizes[:FIRST], "all": sizes, "end": sizes[-FIRST:]}
    return {name: sum(part) / len(part) for name, part in parts.items()}
