"""The optimisation that SRe2L, LPLD and FADRM share.

A method is where it starts, what classes it wants, which BN statistics it is matched with and its stages; this loop
does the rest: Adam(0.5, 0.9), new in every stage, on images in normalised space; one cosine over all iterations; each
iteration one teacher (in turn), one view, cross-entropy + r_bn x BN term; then a clamp to the range of real pixels. The
last iterate is kept. All draws are made ahead, and nothing waits for the device inside the loop.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hald.networks.memory_layout import can_compile
from hald.synthesis.optimiser.bn_matching import Matcher, Targets
from hald.synthesis.optimiser.crops_and_rolls import draw_jitter, matrices, view_of
from hald.synthesis.spec import Recover

BETAS, EPS = (0.5, 0.9), 1e-8
BLOCK = 64  # iterations whose matrices are made at once
COMPILE_FROM = 2000  # iterations of a unit; on two CPU cores compiling paid after 204 (ResNet-18) and 1,759 (ResNet-10)
Objective = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Problem:
    """What a method asks of the loop, for one batch of images."""

    start: Tensor  # (n, 3, D, D) normalised, D the side of the first stage
    labels: Tensor  # (n,) wanted classes
    address: tuple[int, int]  # seed and counter of all draws
    targets: Targets | None = None  # wanted BN statistics; None: each teacher's running ones
    residual: Tensor | None = None  # (n, 3, S, S) what is blended in between stages (FADRM)
    alpha: float = 1.0  # share of the optimised image in that blend


@dataclass(frozen=True)
class Teachers:
    """Frozen networks on a device, their objectives, and the range of real pixels in their normalised space."""

    matchers: list[Matcher]
    objectives: list[Objective]
    low: Tensor  # (1, 3, 1, 1)
    high: Tensor


def make_teachers(
    matchers: list[Matcher],
    settings: Recover,
    statistics: tuple[tuple[float, ...], tuple[float, ...]],
    device: torch.device,
) -> Teachers:
    """Make the objectives of a job."""
    mean, std = (torch.tensor(values, device=device).view(1, 3, 1, 1) for values in statistics)
    objectives = [objective(matcher, settings) for matcher in matchers]
    if pays_to_compile(settings, [matcher.model for matcher in matchers], device):
        objectives = [torch.compile(function, dynamic=False) for function in objectives]
    return Teachers(matchers, objectives, -mean / std, (1 - mean) / std)


def pays_to_compile(settings: Recover, models: list[nn.Module], device: torch.device) -> bool:
    """Whether a job compiles its step: `auto` if one unit, the least that a job does, pays for it.

    The length of the job does not count, because the same seed gives the same bytes however units are cut into jobs.
    """
    if settings.compile != "auto":
        return settings.compile == "on"
    return sum(settings.budgets) >= COMPILE_FROM and all(can_compile(model, device) for model in models)


def rate(lr: float, iteration: int, iterations: int) -> float:
    """Learning rate of an iteration: half a cosine from `lr` to zero over all iterations of all stages."""
    return lr * 0.5 * (1 + math.cos(math.pi * iteration / iterations))


def objective(matcher: Matcher, settings: Recover) -> Objective:
    """The loss of one iteration with one teacher: (images, rows, columns, labels) -> scalar."""

    def loss(x: Tensor, rows: Tensor, columns: Tensor, labels: Tensor) -> Tensor:
        view = view_of(x, rows, columns)
        with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=settings.amp and x.device.type == "cuda"):
            logits, term = matcher(view)
        total = F.cross_entropy(logits, labels) + settings.r_bn * term
        if settings.tv:
            total = total + settings.tv * total_variation(view)
        if settings.l2:
            total = total + settings.l2 * mean_norm(view)
        return total

    return loss


def total_variation(x: Tensor) -> Tensor:
    """Sum of the L2 norms of the differences to the right, lower, lower-right and lower-left neighbours."""
    pairs = (
        (x[..., :, 1:], x[..., :, :-1]),
        (x[..., 1:, :], x[..., :-1, :]),
        (x[..., 1:, 1:], x[..., :-1, :-1]),
        (x[..., 1:, :-1], x[..., :-1, 1:]),
    )
    return torch.stack([torch.linalg.vector_norm(a - b) for a, b in pairs]).sum()


def mean_norm(x: Tensor) -> Tensor:
    """Mean over images of the L2 norm of their pixels."""
    norms: Tensor = torch.linalg.vector_norm(x.flatten(1), dim=1)
    return norms.mean()


def optimise(settings: Recover, teachers: Teachers, problem: Problem) -> Tensor:
    """Run all stages; the last iterate, (n, 3, S, S) normalised."""
    if problem.targets is not None:
        for matcher in teachers.matchers:
            matcher.targets = problem.targets
    x, done = problem.start, 0
    for stage, budget in enumerate(settings.budgets):
        if stage and problem.residual is not None:
            x = merge(x, problem.residual, settings.sizes[stage], problem.alpha)
        x = _stage(settings, teachers, problem, x, stage, done)
        done += budget
    return x


def _stage(settings: Recover, teachers: Teachers, problem: Problem, x: Tensor, stage: int, done: int) -> Tensor:
    """One stage, `done` iterations after the start: a new Adam on a copy of `x`."""
    x = x.detach().clone(memory_format=torch.contiguous_format).requires_grad_()
    adam = torch.optim.Adam([x], lr=settings.lr, betas=BETAS, eps=EPS, fused=True)
    jitter = draw_jitter(settings, stage, len(x), *problem.address)
    budget, total = settings.budgets[stage], sum(settings.budgets)
    for first in range(0, budget, BLOCK):
        rows, columns = matrices(jitter, first, min(first + BLOCK, budget), x.shape[-1], x.device)
        for i in range(len(rows)):
            t = done + first + i
            loss = teachers.objectives[t % len(teachers.objectives)](x, rows[i], columns[i], problem.labels)
            adam.param_groups[0]["lr"] = rate(settings.lr, t, total)
            adam.zero_grad()
            loss.backward()
            adam.step()
            with torch.no_grad():
                x.clamp_(teachers.low, teachers.high)
    return x.detach()


def merge(x: Tensor, residual: Tensor, size: int, alpha: float) -> Tensor:
    """FADRM's blend between stages: alpha x + (1 - alpha) P, both resized to the next stage's side."""
    return alpha * resized(x, size) + (1 - alpha) * resized(residual, size)


def resized(x: Tensor, size: int) -> Tensor:
    """Plain bilinear resizing (half-pixel centres, no antialiasing), as OpenCV and the released code do it."""
    if x.shape[-1] == size:
        return x
    return F.interpolate(x, size=(size, size), mode="bilinear", align_corners=False)
