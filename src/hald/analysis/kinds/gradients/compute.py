"""Do soft and hard labels pull the same way? Cosine of their gradients along a training on soft labels.

Each step has one forward pass of the student and one of the teacher (without gradients) on the same mixed crops; the
released script had three in train mode, which moved the BN statistics three times.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from hald.analysis.frozen_network import Probe
from hald.analysis.subjects import Found, Lab
from hald.errors import UserError
from hald.evaluation.batches import Batch
from hald.evaluation.cross_entropy import CrossEntropy
from hald.evaluation.divergence import tempered
from hald.evaluation.hard_batches import HardBatches
from hald.evaluation.phases import learning_rate
from hald.evaluation.spec import RunSpec
from hald.networks.batch_statistics import batch_statistics
from hald.networks.build import build_model
from hald.networks.memory_layout import laid_out
from hald.numerics.checkpoint import seed_epoch
from hald.numerics.views import normalize
from hald.plain import from_dict


@dataclass(frozen=True)
class Similarity:
    """Cosine of the two gradients at every step."""

    cosine: list[float]
    steps_per_epoch: int
    mean: float


def measure(lab: Lab, number: int) -> Found:
    """Cosine of soft and hard gradients along a training, and how many labels the soft ones then count as."""
    subject, options = lab.spec.subjects[number], lab.spec.options
    spec = released_spec(from_dict(RunSpec, options["runs"][number]), options["epochs"])
    torch.manual_seed(options["seed"])
    student = laid_out(build_model(spec.arch, spec.classes, spec.size), lab.device)
    images, labels = lab.images(subject)
    target = torch.from_numpy(labels).to(lab.device)
    found = gradient_similarity(spec, student, lab.teacher(subject), images, target, options["seed"])
    per_image = subject.place["slc"] / subject.place["ipc"]
    return asdict(found) | {
        "labels_per_image": per_image,
        "effective_labels_per_image": effective_sample_size(per_image, found.mean),
    }


def effective_sample_size(s: float, rho: float) -> float:
    """Corollary: s labels count as s / (1 - rho^2) where soft and hard gradients have mean cosine `rho`."""
    if not -1 < rho < 1:
        raise UserError(f"the mean cosine of gradients must lie between -1 and 1, found {rho}")
    return s / (1 - rho**2)


def released_spec(spec: RunSpec, epochs: int = 100) -> RunSpec:
    """A run's settings with the released analysis' optimiser: rate 1e-3, eta 2, decay 1e-4, smoothing 0.8."""
    return replace(spec, epochs=epochs, lr=1e-3, eta=2.0, weight_decay=1e-4, smoothing=0.8)


def gradient_similarity(
    spec: RunSpec,
    student: nn.Module,
    teacher: Probe,
    images: Tensor,
    labels: Tensor,
    seed: int,
    temperature: float = 20.0,
) -> Similarity:
    """Train `student` with the teacher's labels alone and compare the gradients of KL and cross-entropy on the way.

    Images (N, 3, S, S) uint8 and labels (N,) on the student's device. Crops, CutMix and smoothed targets are those of
    the hard stage; weight decay is on all parameters. The teacher normalises by batch whatever the images, as released.
    """
    hard = HardBatches(spec, images, labels)
    optimizer = torch.optim.AdamW(student.parameters(), lr=spec.lr, weight_decay=spec.weight_decay)
    parts = []
    for epoch in range(spec.epochs):
        seed_epoch("gradients", seed, epoch)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(spec, epoch)
        labelled = _labelled(hard.epoch(seed, epoch), spec, teacher)
        parts.append(similarity_epoch(student, optimizer, labelled, temperature).cpu())
    series = torch.cat(parts).tolist()
    return Similarity(series, len(parts[0]), float(np.mean(series)))


def _labelled(batches: Iterator[Batch], spec: RunSpec, teacher: Probe) -> Iterator[tuple[Batch, Tensor]]:
    """Every batch of the hard stage with the teacher's logits for its pictures."""
    teacher.model.eval()
    # from the student's normalisation to the teacher's: exactly nothing where they have the same
    mean = tuple((t - s) / by for t, s, by in zip(teacher.mean, spec.mean, spec.std, strict=True))
    std = tuple(t / s for t, s in zip(teacher.std, spec.std, strict=True))
    for batch in batches:
        with torch.no_grad(), batch_statistics(teacher.model, 1):
            answers = teacher.model(normalize(batch.x, mean, std)).float()
        yield batch, answers


def similarity_epoch(
    student: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[tuple[Batch, Tensor]],
    temperature: float,
) -> Tensor:
    """One step per (batch with smoothed targets, teacher's logits): (steps,) cosines, still on the device."""
    student.train()
    hard_loss = CrossEntropy()
    parameters = [p for p in student.parameters() if p.requires_grad]
    cosines = []
    for batch, answers in batches:
        logits = student(batch.x).float()
        soft_loss = tempered(logits, answers, temperature, squared=False)
        soft = torch.autograd.grad(soft_loss, parameters, retain_graph=True)
        hard = torch.autograd.grad(hard_loss(logits, batch), parameters)
        cosines.append(gradient_cosine(soft, hard))
        for parameter, gradient in zip(parameters, soft, strict=True):
            parameter.grad = gradient
        optimizer.step()
    return torch.stack(cosines)


def gradient_cosine(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> Tensor:
    """Cosine of two gradients, each given as one tensor per parameter."""
    x, y = (torch.cat([part.reshape(-1) for part in gradient]) for gradient in (a, b))
    # unit vectors first: KL at T = 20 has gradients whose squares are tiny
    return torch.dot(x / x.norm().clamp(min=1e-30), y / y.norm().clamp(min=1e-30))
