"""Loss landscapes: the mean cross-entropy on a plane through a network's weights.

The first direction points from the competing network to this one, the second is random (seeded) and orthogonal to it.
Both are scaled to unit length filter by filter, as released, and then as a whole; BN and biases stay. Inputs are
normalised, which the released script forgot.
"""

from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from hald.analysis.frozen_network import Pixels, Probe, chunks, pick
from hald.analysis.subjects import Found, Lab
from hald.errors import UserError
from hald.numerics.random_streams import Floats, Ints, generator
from hald.numerics.views import normalize

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Plane:
    """A network's weights and the two directions in which they are moved, by name; `radius` is the reach of 1."""

    centre: Weights
    first: Weights
    second: Weights
    radius: float

    def at(self, alpha: float, beta: float) -> Weights:
        """The moved weights."""
        a, b = alpha * self.radius, beta * self.radius
        return {name: w + a * self.first[name] + b * self.second[name] for name, w in self.centre.items()}


@dataclass(frozen=True)
class Landscape:
    """Losses (n, n) on the grid `steps` x `steps`: row = along the first direction, column = along the second."""

    steps: list[float]
    losses: list[list[float]]
    centre: float
    sharpness: float
    radius: float


def measure(lab: Lab, number: int) -> Found:
    """Loss around a student on its distilled images and on the test pictures; the other subject gives a direction."""
    subject, options = lab.spec.subjects[number], lab.spec.options
    other = lab.spec.subjects[number + 1 if number % 2 == 0 else number - 1]
    probe = lab.student(subject)
    plane = make_plane(probe.model, lab.student(other).model, options["seed"])
    resolution = options["resolution"]
    return {
        "train": asdict(landscape(probe, plane, *lab.images(subject), resolution)),
        "test": asdict(landscape(probe, plane, *lab.test, resolution)),
    }


def make_plane(model: nn.Module, reference: nn.Module, seed: int, reach: float = 0.1) -> Plane:
    """The plane around `model`, whose first direction comes from `reference` (same architecture, other training)."""
    weights, others = dict(model.named_parameters()), dict(reference.named_parameters())
    if {name: w.shape for name, w in weights.items()} != {name: w.shape for name, w in others.items()}:
        raise UserError("the two networks of a landscape differ in their parameters; give two of one architecture")
    apart = {name: (w - others[name]).detach().float() for name, w in weights.items()}
    moved = [name for name, w in weights.items() if "weight" in name and w.ndim in (2, 4)]
    distance = float(torch.stack([d.square().sum() for d in apart.values()]).sum().sqrt())
    if distance == 0:
        raise UserError("the two networks of a landscape have the same weights: there is no direction between them")
    first = _unit({name: per_filter(apart[name]) for name in moved})
    second = _unit(_orthogonal({name: per_filter(_noise(apart[name], name, seed)) for name in moved}, first))
    return Plane({name: weights[name].detach() for name in moved}, first, second, reach * distance)


def per_filter(direction: Tensor) -> Tensor:
    """Every filter (convolution) or row (linear layer) at unit length; zero stays zero."""
    return F.normalize(direction.flatten(1), dim=1).view_as(direction)


def _noise(like: Tensor, name: str, seed: int) -> Tensor:
    """Standard normal numbers, addressed by the parameter's name."""
    drawn = generator(f"landscape:{name}", seed).standard_normal(tuple(like.shape))
    return torch.from_numpy(drawn).to(like.device, like.dtype)


def _dot(a: Weights, b: Weights) -> Tensor:
    return torch.stack([(a[name] * b[name]).sum() for name in a]).sum()


def _unit(direction: Weights) -> Weights:
    norm = _dot(direction, direction).sqrt().clamp(min=1e-12)
    return {name: part / norm for name, part in direction.items()}


def _orthogonal(direction: Weights, unit: Weights) -> Weights:
    """The part of a direction that is orthogonal to a unit vector (Gram-Schmidt)."""
    along = _dot(direction, unit)
    return {name: part - along * unit[name] for name, part in direction.items()}


@torch.inference_mode()
def landscape(
    probe: Probe, plane: Plane, images: Pixels, labels: Ints, resolution: int = 21, batch: int = 512
) -> Landscape:
    """Mean cross-entropy at every point of the grid in [-1, 1]^2, network in eval mode with its BN statistics frozen.

    `images` (N, 3, size, size) uint8 are seen whole, each batch at all points before the next is read.
    """
    if resolution < 3 or resolution % 2 == 0:
        raise UserError(f"the grid needs a middle: resolution must be odd and at least 3, found {resolution}")
    probe.model.eval()
    steps = np.linspace(-1, 1, resolution)
    sums = torch.zeros(resolution, resolution, dtype=torch.float64, device=probe.device)
    for rows in chunks(np.arange(len(images)), batch):
        x = normalize(pick(images, rows, probe.device).float().div_(255), probe.mean, probe.std)
        target = torch.from_numpy(labels[rows]).to(probe.device)
        for i, alpha in enumerate(steps):
            for j, beta in enumerate(steps):
                logits = functional_call(probe.model, plane.at(float(alpha), float(beta)), (x,))
                sums[i, j] += F.cross_entropy(logits.double(), target, reduction="sum")
    losses = (sums / len(images)).cpu().numpy()
    middle = resolution // 2
    centre = float(losses[middle, middle])
    return Landscape(steps.tolist(), losses.tolist(), centre, sharpness(losses, 2 / (resolution - 1)), plane.radius)


def sharpness(losses: Floats, step: float) -> float:
    """Largest eigenvalue of the 2 x 2 Hessian at the middle of a grid of losses, by central differences."""
    m = len(losses) // 2
    z = losses[m - 1 : m + 2, m - 1 : m + 2]
    aa = (z[2, 1] - 2 * z[1, 1] + z[0, 1]) / step**2
    bb = (z[1, 2] - 2 * z[1, 1] + z[1, 0]) / step**2
    ab = (z[2, 2] - z[2, 0] - z[0, 2] + z[0, 0]) / (4 * step**2)
    return float(np.linalg.eigvalsh(np.array([[aa, ab], [ab, bb]]))[-1])
