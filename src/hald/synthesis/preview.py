"""A sheet of images to look at: a row per class, with its name at the left."""

from pathlib import Path

import numpy as np
import zarr
from PIL import Image, ImageDraw

from hald.files import write_atomic
from hald.jobs.job import Job
from hald.synthesis.spec import PreviewSpec

CLASSES, IMAGES = 20, 10  # at most
CELL, GAP, NAME = 64, 2, 110  # pixels: an image, between images, room for a name


def make(job: Job[PreviewSpec]) -> None:
    """Draw the sheet of an image set."""
    sheet = draw_sheet(job.made_from[job.spec.images], job.spec.ipc)
    (file,) = job.units[0]
    write_atomic(file, lambda temporary: sheet.save(temporary, "png"))


def draw_sheet(folder: Path, ipc: int) -> Image.Image:
    """The first images of classes spread over the whole list, from an image set or a label store (class-major)."""
    group = zarr.open_group(folder, mode="r")
    images, classes = group["images"], [str(name) for name in group.attrs["classes"]]  # type: ignore[union-attr]
    count = min(CLASSES, len(classes))
    shown = np.linspace(0, len(classes) - 1, count).round().astype(int).tolist()
    columns = min(IMAGES, ipc)
    step = CELL + GAP
    sheet = Image.new("RGB", (NAME + columns * step, len(shown) * step), "white")
    draw = ImageDraw.Draw(sheet)
    for row, label in enumerate(shown):
        draw.text((4, row * step + CELL // 2 - 6), classes[label][:17], fill="black")
        for column, pixels in enumerate(np.asarray(images[label * ipc : label * ipc + columns])):  # type: ignore[index]
            picture = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
            method = Image.Resampling.NEAREST if picture.width < CELL else Image.Resampling.BILINEAR
            sheet.paste(picture.resize((CELL, CELL), method), (NAME + column * step, row * step))
    return sheet
