"""Random crops of real training images, batch by batch: rendered on the device, or decoded by workers."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from hald.datasets.decode import Pixels
from hald.datasets.reader import Split
from hald.errors import UserError
from hald.numerics.random_streams import Floats, Ints
from hald.numerics.views import Range, crop_boxes, render


@dataclass(frozen=True)
class CropRequest:
    """One batch: image indices (n,), uniforms for their boxes (n, CROP_WIDTH), flips (n,) of bool."""

    index: Ints
    draws: Floats
    flip: np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Crops:
    """How crops of a split are cut."""

    split: Split
    size: int
    scale: Range
    ratio: Range
    workers: int
    device: torch.device

    def batches(self, requests: Sequence[CropRequest]) -> Iterator[Tensor]:
        """(n, 3, size, size) float32 in [0, 1] on the device, one tensor per request, in order."""
        if self.split.pixels is not None:
            yield from (self._rendered(request) for request in requests)
            return
        self.split.warm()
        workers = min(self.workers, os.cpu_count() or 1)
        try:
            for pixels in DataLoader(_Requests(self, requests), batch_size=None, num_workers=workers):
                yield pixels.to(self.device, non_blocking=True).to(torch.float32).div_(255)
        except UserError as error:  # torch wraps a worker's message in its traceback
            raise UserError(str(error).rpartition("UserError: ")[2].strip()) from None

    def _rendered(self, request: CropRequest) -> Tensor:
        pixels = self.split.pixels
        assert pixels is not None
        images = torch.from_numpy(pixels[request.index]).to(self.device, non_blocking=True)
        box = crop_boxes(request.draws, images.shape[2], images.shape[3], self.scale, self.ratio)
        flip = torch.from_numpy(request.flip).to(self.device)
        return render(images, torch.from_numpy(box).to(self.device), flip, self.size)

    def padded(self, requests: Sequence[CropRequest], padding: int) -> Iterator[Tensor]:
        """RandomCrop of the zero-padded image at its own size, one tensor per request."""
        if self.split.pixels is None:
            raise UserError(
                "`crop: padded` needs images that have the input size; use `crop: resized` for this dataset"
            )
        for request in requests:
            images = torch.from_numpy(self.split.pixels[request.index]).to(self.device, non_blocking=True)
            images = torch.nn.functional.pad(images, (padding,) * 4)
            offset = np.floor(request.draws[:, :2] * (2 * padding + 1)).astype(np.int64)
            box = np.concatenate([offset, np.full_like(offset, self.size)], axis=1)
            flip = torch.from_numpy(request.flip).to(self.device)
            yield render(images, torch.from_numpy(box).to(self.device), flip, self.size)

    def decoded(self, request: CropRequest) -> Tensor:
        """The same batch from encoded images: (n, 3, size, size) uint8, cropped and resized by PIL."""
        crops, last, pixels = [], -1, np.empty((0, 0, 3), dtype=np.uint8)
        for index, draws, flip in zip(request.index, request.draws, request.flip, strict=True):
            if index != last:  # several crops of one image stand together: decode it once
                last, pixels = index, self.split.read(int(index))
            box = crop_boxes(draws[None], pixels.shape[0], pixels.shape[1], self.scale, self.ratio)[0]
            crop = cut(pixels, box, self.size)
            crops.append(crop[:, :, ::-1] if flip else crop)
        return torch.from_numpy(np.stack(crops))

    def cut(self, index: Ints, box: Ints) -> Tensor:
        """Given crops, without drawing: images (n,), boxes (n, 4) -> (n, 3, size, size) uint8."""
        if self.split.pixels is None:
            crops = [cut(self.split.read(int(i)), b, self.size) for i, b in zip(index, box, strict=True)]
            return torch.from_numpy(np.stack(crops)).to(self.device)
        images = torch.from_numpy(self.split.pixels[index]).to(self.device)
        flip = torch.zeros(len(index), dtype=torch.bool, device=self.device)
        pixels = render(images, torch.from_numpy(box).to(self.device), flip, self.size)
        return pixels.mul_(255).round_().to(torch.uint8)


def cut(pixels: Pixels, box: Ints, size: int) -> Pixels:
    """One crop of a decoded image, (3, size, size) uint8."""
    top, left, height, width = box.tolist()
    # crop first: resize(box=...) would look at pixels beyond the box's edge
    crop = Image.fromarray(pixels).crop((left, top, left + width, top + height))
    return np.asarray(crop.resize((size, size), Image.Resampling.BILINEAR)).transpose(2, 0, 1)


class _Requests(Dataset[Tensor]):
    """Requests as a dataset, so that DataLoader workers decode whole batches ahead."""

    def __init__(self, crops: Crops, requests: Sequence[CropRequest]) -> None:
        self.crops, self.requests = crops, requests

    def __len__(self) -> int:
        return len(self.requests)

    def __getitem__(self, i: int) -> Tensor:
        return self.crops.decoded(self.requests[i])
