"""The temperature of hard phases at which they want logits of the size that soft ones want."""

import math

import torch.nn.functional as F
from torch import Tensor

from hald.errors import UserError


def temperature_of(logits: Tensor, confidence: float) -> float:
    """The temperature from 1 to 100 at which the largest probability of (n, C) logits is `confidence` on average."""

    def mean(temperature: float) -> float:
        return float(F.softmax(logits / temperature, dim=1).amax(dim=1).mean())

    low, high = 1.0, 100.0  # the mean falls as the temperature rises
    if not mean(high) <= confidence <= mean(low):
        raise UserError(
            f"hard_temperature: matched: the stored labels' largest probability is {mean(low):.3f} on average, and "
            f"{mean(high):.3f} at temperature 100; the smoothed class labels' {confidence:.3f} does not lie between. "
            f"Change `smoothing`, or give hard_temperature a number"
        )
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if mean(middle) > confidence else (low, middle)
    return round(high, 4)
