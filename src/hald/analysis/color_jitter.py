"""torchvision's ColorJitter for a whole batch, every image with its own strengths and its own order."""

import torch
from torch import Tensor

from hald.numerics.random_streams import Floats

Strength = tuple[float, float, float, float]  # brightness, contrast, saturation, hue
NO_JITTER: Strength = (0.0, 0.0, 0.0, 0.0)
GREY = (0.2989, 0.587, 0.114)


def jitter(x: Tensor, u: Floats, strength: Strength) -> Tensor:
    """Jittered pictures. x (n, 3, S, S) in [0, 1]; u (n, 8): four uniforms for the strengths, four for the order.

    Factors are uniform in 1 ± strength, the hue's shift in ± strength of a full turn.
    """
    factor = torch.from_numpy(_factors(u[:, :4], strength)).to(x.device, x.dtype)
    order = torch.from_numpy(u[:, 4:8].argsort(axis=1)).to(x.device)
    for turn in range(4):
        for kind, change in enumerate(CHANGES):
            mine = (order[:, turn] == kind)[:, None, None, None]
            x = torch.where(mine, change(x, factor[:, kind, None, None, None]), x)
    return x


def _factors(u: Floats, strength: Strength) -> Floats:
    """(n, 4) brightness, contrast and saturation factors and the hue's shift."""
    return (2 * u - 1) * strength + [1.0, 1.0, 1.0, 0.0]


def brightness(x: Tensor, factor: Tensor) -> Tensor:
    """Blend with black. x (n, 3, S, S), factor (n, 1, 1, 1)."""
    return (x * factor).clamp(0, 1)


def contrast(x: Tensor, factor: Tensor) -> Tensor:
    """Blend with the picture's mean grey."""
    return _blend(x, grey(x).mean(dim=(2, 3), keepdim=True), factor)


def saturation(x: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grey picture."""
    return _blend(x, grey(x), factor)


def hue(x: Tensor, shift: Tensor) -> Tensor:
    """Turn the hue by `shift` (n, 1, 1, 1) of a full turn, in HSV."""
    value, low = x.amax(dim=1, keepdim=True), x.amin(dim=1, keepdim=True)
    chroma = value - low
    red, green, blue = ((value - x) / chroma.clamp(min=1e-12)).split(1, dim=1)
    sixth = torch.where(x[:, :1] == value, blue - green, 0.0)
    sixth = torch.where((x[:, 1:2] == value) & (x[:, :1] != value), 2 + red - blue, sixth)
    sixth = torch.where((x[:, 1:2] != value) & (x[:, :1] != value), 4 + green - red, sixth)
    place = x.new_tensor([5.0, 3.0, 1.0]).view(1, 3, 1, 1) + sixth + 6 * shift
    place = torch.remainder(place, 6)
    return (value - chroma * torch.minimum(place, 4 - place).clamp(0, 1)).clamp(0, 1)


def grey(x: Tensor) -> Tensor:
    """(n, 1, S, S) luminance."""
    return (x * x.new_tensor(GREY).view(1, 3, 1, 1)).sum(dim=1, keepdim=True)


def _blend(x: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    return (factor * x + (1 - factor) * other).clamp(0, 1)


CHANGES = (brightness, contrast, saturation, hue)
