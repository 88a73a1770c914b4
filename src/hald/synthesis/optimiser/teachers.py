"""Optimised units: what SRe2L, LPLD and FADRM have in common around the loop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hald.datasets.reader import PreparedDataset, open_dataset
from hald.errors import UserError
from hald.jobs.job import Job
from hald.jobs.log import log
from hald.numerics.device import setup
from hald.numerics.random_streams import generator
from hald.numerics.views import normalize
from hald.same_origin import require_same_data
from hald.squeeze.teacher import load_teacher
from hald.synthesis.optimiser.bn_matching import Matcher, bn_layers
from hald.synthesis.optimiser.loop import Problem, Teachers, make_teachers, optimise
from hald.synthesis.spec import UnitsSpec
from hald.synthesis.unit_files import Arrays, compute_units


@dataclass(frozen=True)
class Bench:
    """What every unit of a job needs, loaded once."""

    spec: UnitsSpec
    dataset: PreparedDataset
    made_from: Mapping[str, Path]  # folders of a ranking (patches) or of class statistics (LPLD), by key
    teachers: Teachers
    mean: tuple[float, ...]
    std: tuple[float, ...]
    device: torch.device


Method = Callable[[Bench], Callable[[int], list[Problem]]]


def recover(job: Job[UnitsSpec], method: Method) -> None:
    """Compute the units of a job. `method` turns a unit's number into what is to be optimised."""
    bench = make_bench(job)
    problems = method(bench)

    def recovered(unit: int) -> Arrays:
        parts = [_finished(bench, problem) for problem in problems(unit)]
        images, loss = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
        return {"images": images, "loss": loss, "dataset_digest": np.array(bench.dataset.digest)}

    compute_units(job, recovered, bench.device)


def make_bench(job: Job[UnitsSpec]) -> Bench:
    """Load dataset and teachers, after checking that they belong together."""
    spec, device = job.spec, setup(job.spec.threads)
    data = job.made_from[spec.dataset]
    dataset = open_dataset(data)
    matchers, statistics = [], []
    for folder in (job.made_from[key] for key in spec.teachers):
        model, record = load_teacher(folder, dataset.classes, job.floor, device)
        require_same_data(record["dataset_digest"], f"teacher {folder}", dataset.digest, str(data))
        if not bn_layers(model):
            log.info("%s has no BN layers: its iterations have no BN term", record["arch"])
        matchers.append(Matcher(model, spec.recover.first_bn))
        statistics.append((tuple(record["mean"]), tuple(record["std"])))
    if not any(bn_layers(matcher.model) for matcher in matchers):
        raise UserError(f"{spec.method} matches BN statistics, and {spec.arch} has no BN layers; name another teacher")
    teachers = make_teachers(matchers, spec.recover, statistics[0], device)
    return Bench(spec, dataset, job.made_from, teachers, *statistics[0], device)


def of_unit(bench: Bench, unit: int) -> tuple[int, Tensor]:
    """Image index and classes of unit k * chunks + c (SRe2L, FADRM)."""
    image, chunk = divmod(unit, bench.spec.chunks)
    first = chunk * bench.spec.batch
    return image, torch.arange(first, min(first + bench.spec.batch, bench.spec.classes), device=bench.device)


def gaussian(seed: int, counter: int, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Standard normal noise by address."""
    noise = generator("recover-start", seed, counter).standard_normal(shape, dtype=np.float32)
    return torch.from_numpy(noise).to(device)


def _finished(bench: Bench, problem: Problem) -> tuple[Tensor, Tensor]:
    """Optimise one batch: 8-bit images, and each one's final classification loss."""
    pixels = to_pixels(optimise(bench.spec.recover, bench.teachers, problem), bench.mean, bench.std)
    return pixels, final_loss(bench, pixels, problem.labels)


def to_pixels(x: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Normalised images -> uint8, rounded (the released code truncates, half a grey level too dark)."""
    shape = (1, -1, 1, 1)
    grey = x * x.new_tensor(std).view(shape) + x.new_tensor(mean).view(shape)
    return grey.mul(255).round().clamp(0, 255).to(torch.uint8)


@torch.no_grad()
def final_loss(bench: Bench, pixels: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of each 8-bit image as a whole, (n,); the mean over the teachers."""
    x = normalize(pixels / 255, bench.mean, bench.std)
    losses = [F.cross_entropy(matcher(x)[0], labels, reduction="none") for matcher in bench.teachers.matchers]
    return torch.stack(losses).mean(dim=0)
