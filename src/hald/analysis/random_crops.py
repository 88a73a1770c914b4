"""Random crops for the analyses: drawn by address, cut and jittered in batches on the device."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hald.analysis.color_jitter import NO_JITTER, Strength, jitter
from hald.numerics.random_streams import Floats, Ints, uniforms
from hald.numerics.views import CROP_WIDTH, Range, crop_boxes, render

WIDTH = CROP_WIDTH + 9  # uniforms of one crop: box, flip, four jitter strengths, four ranks of their order
RATIO: Range = (3 / 4, 4 / 3)


@dataclass(frozen=True)
class CropRule:
    """How a crop is drawn. `central`: the middle square of this share of the side, every time; nothing is random."""

    scale: Range = (0.08, 1.0)
    ratio: Range = RATIO
    flip: float = 0.0
    jitter: Strength = NO_JITTER
    central: float | None = None


@dataclass(frozen=True)
class Crops:
    """Drawn crops, one per image: boxes (n, 4) top, left, height, width; flips (n,); jitter uniforms (n, 8)."""

    box: Ints
    flip: NDArray[np.bool_]
    colour: Floats
    rule: CropRule

    def take(self, rows: Ints) -> "Crops":
        """Some of them, in the order of `rows`."""
        return Crops(self.box[rows], self.flip[rows], self.colour[rows], self.rule)

    def cut(self, images: Tensor, size: int) -> Tensor:
        """The crops of `images` (n, 3, H, W) uint8: (n, 3, size, size) float32 in [0, 1]."""
        box, flip = (torch.from_numpy(part).to(images.device) for part in (self.box, self.flip))
        pixels = render(images, box, flip, size)
        return pixels if self.rule.jitter == NO_JITTER else jitter(pixels, self.colour, self.rule.jitter)


def draw_crops(rule: CropRule, stream: str, seed: int, counter: int, count: int, source: tuple[int, int]) -> Crops:
    """One crop for each of `count` images of `source` (height, width) pixels; image i has the same for any count."""
    u = uniforms(stream, seed, counter, count, WIDTH)
    if rule.central is None:
        box = crop_boxes(u[:, :CROP_WIDTH], *source, rule.scale, rule.ratio)
    else:
        box = np.tile(_middle(rule.central, *source), (count, 1))
    return Crops(box, u[:, CROP_WIDTH] < rule.flip, u[:, CROP_WIDTH + 1 :], rule)


def _middle(share: float, height: int, width: int) -> Ints:
    """The middle square whose side is `share` of the shorter side, as Resize and CenterCrop leave it."""
    side = round(share * min(height, width))
    return np.array([(height - side) // 2, (width - side) // 2, side, side], dtype=np.int64)
