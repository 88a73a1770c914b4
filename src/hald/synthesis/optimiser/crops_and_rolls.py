"""Crop, flip and roll of the optimisation: drawn ahead as integers, applied as two matrix products.

Crop, resize, flip and cyclic roll are linear and act on rows and columns apart, so that a view of image x is
rows @ x @ columns^T. By default one draw serves the whole batch, as in the released code.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hald.numerics.random_streams import Ints, uniforms
from hald.numerics.views import CROP_WIDTH, crop_boxes, resampling
from hald.synthesis.spec import Recover


@dataclass(frozen=True)
class Jitter:
    """Draws of T iterations for n images each (n = 1: one for all)."""

    box: Ints  # (T, n, 4) top, left, height, width
    flip: NDArray[np.bool_]  # (T, n)
    roll: Ints  # (T, n, 2) down, right


def draw_jitter(settings: Recover, stage: int, images: int, seed: int, counter: int) -> Jitter:
    """Draws of one stage of one unit: row t of the table belongs to iteration t, whoever computes it."""
    size, iterations = settings.sizes[stage], settings.budgets[stage]
    n = images if settings.per_image else 1
    table = uniforms(f"recover-views-{stage}", seed, counter, iterations, n * (CROP_WIDTH + 3))
    u = table.reshape(iterations * n, CROP_WIDTH + 3)
    low, high = settings.roll
    box = np.tile(np.array([0, 0, size, size]), (len(u), 1))
    if settings.crop:
        box = crop_boxes(u[:, :CROP_WIDTH], size, size, settings.scale, settings.ratio)
    return Jitter(
        box=box.reshape(iterations, n, 4),
        flip=((u[:, CROP_WIDTH] < settings.flip) & settings.crop).reshape(iterations, n),
        roll=np.floor(low + (high - low + 1) * u[:, CROP_WIDTH + 1 :]).astype(np.int64).reshape(iterations, n, 2),
    )


def matrices(jitter: Jitter, first: int, last: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Row and column matrices of iterations first .. last-1.

    One draw for all: (T, size, size) each; one per image: (T, n, 1, size, size).
    """
    parts = (jitter.box[first:last], jitter.flip[first:last], jitter.roll[first:last])
    box, flip, roll = (torch.from_numpy(part).to(device, non_blocking=True).flatten(0, 1) for part in parts)
    rows = resampling(box[:, 0], box[:, 2], size, size)
    columns = resampling(box[:, 1], box[:, 3], size, size)
    columns = torch.where(flip[:, None, None], columns.flip(1), columns)
    n = jitter.box.shape[1]
    shape = (last - first, size, size) if n == 1 else (last - first, n, 1, size, size)
    return _rolled(rows, roll[:, 0]).view(shape), _rolled(columns, roll[:, 1]).view(shape)


def _rolled(matrix: Tensor, by: Tensor) -> Tensor:
    """Rows of each matrix (T, size, size) moved down cyclically by `by` (T,)."""
    size = matrix.shape[1]
    source = (torch.arange(size, device=by.device)[None] - by[:, None]) % size
    return matrix.gather(1, source[:, :, None].expand_as(matrix))


def view_of(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The views of a batch, (n, 3, S, S)."""
    return rows @ x @ columns.mT
