"""The label format of the released HALD code, read and written as that code does. Imports nothing of `hald`.

A label epoch is a list of batches [boxes, flips, partners, share, rectangle, probabilities]. Pixels are in [0, 1].
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.functional import hflip, resized_crop

ORDER = "sampler_indices_dict.pt"  # epoch as text: which image stands at which place


def image_folder(root: Path) -> Tensor:
    """Images (N, 3, H, W) in ImageFolder's order: folders by name, in each the files by name."""
    files = [file for folder in sorted(root.iterdir()) for file in sorted(folder.iterdir())]
    arrays = np.stack([np.asarray(Image.open(file).convert("RGB")) for file in files])
    return torch.from_numpy(arrays).permute(0, 3, 1, 2) / 255


def fed(images: Tensor, boxes: list[list[int]], flips: Tensor, partners: Tensor, b: Any, size: int) -> Tensor:
    """What a network is fed with: crops, the flip after the crop, then CutMix in place by slicing (N, C, H, W)."""
    crops = [resized_crop(x, *box, [size, size], antialias=True) for x, box in zip(images, boxes, strict=True)]
    x = torch.stack([hflip(crop) if flip else crop for crop, flip in zip(crops, flips, strict=True)])
    x[:, :, b[0] : b[2], b[1] : b[3]] = x[partners, :, b[0] : b[2], b[1] : b[3]]
    return x


def read_epoch(labels: Path, epoch: int, images: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Of every batch the pixels (B, 3, size, size) that the student is fed with and the probabilities (B, C)."""
    batches, order = torch.load(labels / f"epoch_{epoch}.tar"), torch.load(labels / ORDER)[str(epoch)]
    sides, batch = (*images.shape[2:], *images.shape[2:]), len(batches[0][0])
    for i, (boxes, flips, partners, _, rectangle, probabilities) in enumerate(batches):
        chosen = images[order[i * batch : (i + 1) * batch]]
        pixels = [[int(part * side) for part, side in zip(box, sides, strict=True)] for box in boxes.tolist()]
        yield fed(chosen, pixels, flips, partners, rectangle, size), probabilities


def write_epoch(labels: Path, epoch: int, images: Tensor, order: list[int], batches: list[Any]) -> list[Tensor]:
    """Write what the released relabelling keeps; batches are [boxes in pixels, flips, partners, share, rectangle,
    logits]. Returns the pixels that its teacher would have been fed with.
    """
    file, size, saved, seen, first = labels / ORDER, images.shape[-1], [], [], 0
    for boxes, flips, partners, share, rectangle, logits in batches:
        chosen, first = images[order[first : first + len(boxes)]], first + len(boxes)
        seen.append(fed(chosen, boxes, flips, partners, rectangle, size))
        fractions, kept = (torch.tensor(boxes) / size).half(), (logits / 20).softmax(dim=1).half()
        saved.append([fractions, flips, partners, share, [np.int64(edge) for edge in rectangle], kept])
    torch.save(saved, labels / f"epoch_{epoch}.tar")
    torch.save((torch.load(file) if file.exists() else {}) | {str(epoch): order}, file)
    return seen
