"""How far AdamW moves the weights in every step of a staged training: what its second moment remembers of a stage.

Without T^2 the gradients of hard stages are about a thousand times those of soft ones. Right after a change to hard
labels the second moment is too small for them, and steps are too long; after the change back it is too large, and steps
are too short, for about 1 / (1 - beta2) steps.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hald.errors import UserError
from hald.train.run import Course, Material, train_epoch
from hald.train.schedule import fixed_starts
from hald.train.step import Student, make_student

FIRST = 20  # steps after a boundary that are looked at by themselves


@dataclass(frozen=True)
class Updates:
    """Root mean square of every step's change, in units of the learning rate (a settled Adam: about one or less)."""

    size: list[float]  # one per step
    steps_per_epoch: int
    starts: list[int]  # first epoch of each stage
    by_stage: dict[str, dict[str, float]]  # stage-0, stage-1 ..: mean of its `first` steps, of `all`, of the `end`
    top1: float  # of the student at the end, in percent


def update_sizes(material: Material, seed: int) -> Updates:
    """Train one student as the evaluation does, and measure every step."""
    spec = material.spec
    if spec.adaptive:
        raise UserError(
            "the sizes of updates are compared between stages of fixed length; leave out adaptive schedules"
        )
    student = make_student(spec, seed, material.device)
    course = Course(fixed_starts(spec))
    measured = measure_steps(student)
    for epoch in range(spec.epochs):
        train_epoch(material, student, course, seed, epoch)
    sizes = torch.stack(measured).tolist()
    per_epoch = len(sizes) // spec.epochs
    bounds = [start * per_epoch for start in (*course.starts, spec.epochs)]
    stages = [sizes[a:b] for a, b in itertools.pairwise(bounds)]
    by_stage = {f"stage-{number}": _means(stage) for number, stage in enumerate(stages)}
    return Updates([round(size, 5) for size in sizes], per_epoch, course.starts, by_stage, course.curve[-1]["top1"])


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


def _means(sizes: list[float]) -> dict[str, float]:
    parts = {"first": sizes[:FIRST], "all": sizes, "end": sizes[-FIRST:]}
    return {name: sum(part) / len(part) for name, part in parts.items()}
