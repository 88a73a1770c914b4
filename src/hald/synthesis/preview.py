"""A sheet of an image set to look at: a row per class, with its name at the left."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from hald.synthesis.imageset import ImageSet

CLASSES, IMAGES = 20, 10  # at most
CELL, GAP, NAME = 64, 2, 110  # pixels: an image, between images, room for a name


def write_preview(images: ImageSet, path: Path) -> None:
    """Write the first images of classes spread over the whole list as one PNG."""
    count = min(CLASSES, len(images.classes))
    shown = np.linspace(0, len(images.classes) - 1, count).round().astype(int).tolist()
    columns = min(IMAGES, images.ipc)
    step = CELL + GAP
    sheet = Image.new("RGB", (NAME + columns * step, len(shown) * step), "white")
    draw = ImageDraw.Draw(sheet)
    for row, label in enumerate(shown):
        draw.text((4, row * step + CELL // 2 - 6), images.classes[label][:17], fill="black")
        for column, pixels in enumerate(images.of_class(label)[:columns]):
            picture = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
            method = Image.Resampling.NEAREST if picture.width < CELL else Image.Resampling.BILINEAR
            sheet.paste(picture.resize((CELL, CELL), method), (NAME + column * step, row * step))
    sheet.save(path)
