"""Views: which crop of which image a label is about, and the one renderer that teacher and student share.

A view is integers (image, box, flip, partner, rectangle). Drawing them is a pure function of (seed, view); rendering
them is two small batched matrix products, on any device, with no loop over images.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hald.numerics.random_streams import Floats, Ints, permutation, uniforms

TRIES = 10  # torchvision's RandomResizedCrop gives up after ten
CROP_WIDTH = 4 * TRIES  # uniforms that one crop uses
Range = tuple[float, float]


@dataclass(frozen=True)
class View:
    """One crop of every image, in stored batches: what one label epoch shows."""

    image: Ints  # (N,) image index at each position
    box: Ints  # (N, 4) top, left, height, width in source pixels
    flip: NDArray[np.bool_]  # (N,)
    partner: Ints  # (N,) position inside the batch whose pixels fill the rectangle
    lam: Floats  # (NB,) share drawn for each batch, before clipping
    cut: Ints  # (NB, 4) CutMix rectangle top, left, bottom, right in output pixels; empty: none
    mix: str = "cutmix"


@dataclass(frozen=True)
class ViewSettings:
    """How views are drawn."""

    seed: int
    count: int  # images
    batch: int
    source: tuple[int, int]  # height, width of the images
    size: int  # side of the rendered crop
    scale: Range
    ratio: Range
    flip: float
    mix: str  # cutmix, mixup or none
    mix_alpha: float


def draw_view(settings: ViewSettings, view: int) -> View:
    """Draw label epoch `view`. The same (seed, view) gives the same integers, whoever asks and in which order."""
    s = settings
    crops = uniforms("crop", s.seed, view, s.count, CROP_WIDTH + 1)
    cut_count = -(-s.count // s.batch)
    mixes = uniforms("mix", s.seed, view, cut_count, 3 + s.batch)
    lam = _beta(mixes[:, 0], s.mix_alpha)
    cut = cutmix_rectangles(lam, mixes[:, 1:3], s.size)
    partner = np.argsort(mixes[:, 3:], axis=1).reshape(-1)[: s.count]
    tail = s.count % s.batch
    if tail:  # a short last batch permutes among its own
        partner[-tail:] = np.argsort(mixes[-1, 3 : 3 + tail])
    if s.mix != "cutmix":
        cut = np.zeros_like(cut)
    if s.mix == "none":
        lam = np.ones_like(lam)
    return View(
        image=permutation("order", s.seed, view, s.count),
        box=crop_boxes(crops[:, :CROP_WIDTH], *s.source, s.scale, s.ratio),
        flip=crops[:, CROP_WIDTH] < s.flip,
        partner=partner,
        lam=lam,
        cut=cut,
        mix=s.mix,
    )


def crop_boxes(u: Floats, height: int, width: int, scale: Range, ratio: Range) -> Ints:
    """RandomResizedCrop's rule on given uniforms (n, CROP_WIDTH): (n, 4) boxes top, left, height, width.

    Ten tries of (area, aspect) uniform in (scale, log ratio); the first that fits wins, else the largest central crop.
    """
    area, aspect, y, x = np.moveaxis(u.reshape(len(u), TRIES, 4), 2, 0)
    area = height * width * (scale[0] + (scale[1] - scale[0]) * area)
    low, high = np.log(ratio[0]), np.log(ratio[1])
    aspect = np.exp(low + (high - low) * aspect)
    w, h = np.rint(np.sqrt(area * aspect)), np.rint(np.sqrt(area / aspect))
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first = (np.arange(len(u)), fits.argmax(axis=1))
    h, w = h[first], w[first]
    top, left = np.floor(y[first] * (height - h + 1)), np.floor(x[first] * (width - w + 1))
    boxes = np.stack([top, left, h, w], axis=1).astype(np.int64)
    boxes[~fits.any(axis=1)] = _central_box(height, width, ratio)
    return boxes


def _central_box(height: int, width: int, ratio: Range) -> tuple[int, int, int, int]:
    h, w = height, width
    if width / height < ratio[0]:
        h = round(width / ratio[0])
    elif width / height > ratio[1]:
        w = round(height * ratio[1])
    return (height - h) // 2, (width - w) // 2, h, w


def _beta(u: Floats, alpha: float) -> Floats:
    """Beta(alpha, alpha) by inversion; Beta(1, 1) is the uniform itself."""
    if alpha == 1.0:
        return u.copy()
    from scipy.special import betaincinv

    return np.asarray(betaincinv(alpha, alpha, u), dtype=np.float64)


def cutmix_rectangles(lam: Floats, centre: Floats, size: int) -> Ints:
    """CutMix's square-root rule: side floor(size sqrt(1 - lam)), uniform centre, clipped: (NB, 4) t, l, b, r."""
    half = np.floor(size * np.sqrt(1 - lam)).astype(np.int64)[:, None] // 2
    middle = np.floor(centre * size).astype(np.int64)
    return np.concatenate([np.clip(middle - half, 0, size), np.clip(middle + half, 0, size)], axis=1)


def render(images: Tensor, box: Tensor, flip: Tensor, size: int) -> Tensor:
    """Crop, resize and flip a batch: (B, C, H, W) uint8, (B, 4), (B,) -> (B, C, size, size) float32 in [0, 1].

    Equal to torchvision's antialiased bilinear `resized_crop` on float images, clamped at the crop's edge.
    """
    rows = resampling(box[:, 0], box[:, 2], images.shape[2], size)
    columns = resampling(box[:, 1], box[:, 3], images.shape[3], size)
    columns = torch.where(flip[:, None, None], columns.flip(1), columns)
    pixels = images.to(torch.float32).div_(255)
    return rows[:, None] @ pixels @ columns[:, None].transpose(2, 3)


def resampling(start: Tensor, length: Tensor, source: int, size: int) -> Tensor:
    """(B, size, source) weights of the triangle filter over source pixels [start, start + length)."""
    start, length = start.to(torch.float32)[:, None, None], length.to(torch.float32)[:, None, None]
    scale = length / size
    out = torch.arange(size, device=start.device, dtype=torch.float32)[None, :, None]
    pixel = torch.arange(source, device=start.device, dtype=torch.float32)[None, None, :] - start
    distance = (pixel + 0.5 - scale * (out + 0.5)).abs() / scale.clamp(min=1)
    weight = (1 - distance).clamp(min=0) * ((pixel >= 0) & (pixel < length))
    return weight / weight.sum(dim=2, keepdim=True)


def cutmix(x: Tensor, partner: Tensor, cut: Tensor) -> Tensor:
    """Replace each image's rectangle by the partner's pixels. x (B, C, S, S), partner (B,), cut (B, 4) t, l, b, r."""
    along = torch.arange(x.shape[-1], device=x.device)
    inside_rows = (along >= cut[:, 0:1]) & (along < cut[:, 2:3])
    inside_columns = (along >= cut[:, 1:2]) & (along < cut[:, 3:4])
    mask = inside_rows[:, None, :, None] & inside_columns[:, None, None, :]
    return torch.where(mask, x[partner], x)


def mixup(x: Tensor, partner: Tensor, lam: Tensor) -> Tensor:
    """Each image blended with its partner: lam x + (1 - lam) x[partner]. x (B, C, S, S), partner (B,), lam (B,)."""
    share = lam[:, None, None, None]
    return share * x + (1 - share) * x[partner]


def render_batches(images: Tensor, view: View, rows: Ints, batch: Ints, size: int) -> Tensor:
    """Mixed crops of whole stored batches: row `rows[i]` of the view, in batch `batch[i]`: (n, C, size, size).

    Rows of a batch stand together; a partner is counted from the first of them. The same batch may come twice.
    """
    new = np.diff(batch, prepend=-1) != 0
    new |= np.diff(rows, prepend=-2) != 1
    first = np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0))
    parts = (view.image[rows], view.box[rows], view.flip[rows], first + view.partner[rows], view.cut[batch])
    chosen, box, flip, partner, cut = (torch.from_numpy(part).to(images.device, non_blocking=True) for part in parts)
    x = render(images[chosen], box, flip, size)
    return mixup(x, partner, _tensor(view.lam[batch], x)) if view.mix == "mixup" else cutmix(x, partner, cut)


def _tensor(values: Floats, like: Tensor) -> Tensor:
    return torch.from_numpy(values).to(like.device, like.dtype)


def normalize(x: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Channel-wise (x - mean) / std."""
    shape = (1, -1, 1, 1)
    return (x - x.new_tensor(mean).view(shape)) / x.new_tensor(std).view(shape)
