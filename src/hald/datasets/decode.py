"""Encoded image -> pixels."""

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hald.errors import UserError

Pixels = NDArray[np.uint8]


def decode(item: Pixels | bytes | Path, name: str) -> Pixels:
    """(H, W, 3) uint8 RGB pixels of an image, or a message that names the broken one."""
    if isinstance(item, np.ndarray):
        return item
    try:
        with Image.open(io.BytesIO(item) if isinstance(item, bytes) else item) as image:
            return np.asarray(image.convert("RGB"))
    except Exception as error:  # PIL raises many kinds
        raise UserError(f"cannot decode image {name}: {error}. Replace or remove it, then run again") from error


def image_shape(item: bytes | Path, name: str) -> tuple[int, int]:
    """Height and width of an encoded image, from its header."""
    try:
        with Image.open(io.BytesIO(item) if isinstance(item, bytes) else item) as image:
            return image.height, image.width
    except Exception as error:  # PIL raises many kinds
        raise UserError(f"cannot read image {name}: {error}. Replace or remove it, then run again") from error


def evaluation_image(pixels: Pixels, size: int, resize: int | None, name: str) -> Pixels:
    """Resize the shorter side to `resize` and crop the centre, or insist that the image has the input size."""
    height, width = pixels.shape[:2]
    if resize is None:
        if (height, width) != (size, size):
            raise UserError(
                f"image {name} is {width} x {height}, the dataset's size is {size} x {size}; "
                f"set `resize` (shorter side before the centre crop) for images of other sizes"
            )
        return pixels
    short = min(height, width)
    target = (int(resize * width / short), int(resize * height / short))
    image = Image.fromarray(pixels).resize(target, Image.Resampling.BILINEAR)
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    return np.asarray(image.crop((left, top, left + size, top + size)))
