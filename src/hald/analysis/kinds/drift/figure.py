"""The paper's first figure from data: an image, some of its stored crops, and what the teacher said about each."""

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image

from hald.errors import UserError
from hald.report.figure import Material
from hald.report.style import BLUE, FAINT, GREEN, INK, PALETTE, PURPLE, VERMILION, styled

Picture = NDArray[np.uint8]  # (H, W, 3)
FRAMES = (BLUE, VERMILION, PURPLE, GREEN, *PALETTE[4:])
RIGHT, WRONG = "#8fc4e8", "#d5dbe1"  # light enough for the text on them


def draw(material: Material) -> Figure:
    """The examples of all subjects, one below the other."""
    examples: list[Any] = []
    images: list[Picture] = []
    crops: list[list[Picture]] = []
    for _, found in material.subjects():
        examples += found["examples"]
        images += [as_pixels(text) for text in found["images"]]
        crops += [[as_pixels(text) for text in row] for row in found["crops"]]
    return drift_examples(examples, images, crops)


def as_pixels(text: str) -> Picture:
    """(H, W, 3) uint8 of a picture in a result file."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB"))


@styled
def drift_examples(
    examples: Sequence[Mapping[str, Any]], images: Sequence[Picture], crops: Sequence[Sequence[Picture]]
) -> Figure:
    """A row per Example: the image with its crop boxes, then each crop above bars of the teacher's first classes.

    The true class has blue bars and bold letters. A crop's frame has the colour of its box.
    """
    if not examples:
        raise UserError("there is no example of drift to draw")
    columns = 1 + max(len(example["crops"]) for example in examples)
    figure = Figure(figsize=(1.75 * columns, 2.65 * len(examples)), layout="constrained")
    axes = figure.subplots(2 * len(examples), columns, squeeze=False, height_ratios=[3, 1.35] * len(examples))
    for row, example in enumerate(examples):
        upper, lower = axes[2 * row], axes[2 * row + 1]
        for ax in (*upper, *lower):
            ax.set_axis_off()
        _whole(upper[0], example, images[row])
        for i, crop in enumerate(example["crops"]):
            _picture(upper[i + 1], crops[row][i], FRAMES[i % len(FRAMES)])
            _answers(lower[i + 1], crop["top"], example["name"])
            if crop["own_share"] < 0.995:
                upper[i + 1].set_title(
                    f"{percent(1 - crop['own_share'])} mixed in", color=FAINT, size=8, weight="normal"
                )
    return figure


def _whole(ax: Axes, example: Mapping[str, Any], image: Picture) -> None:
    """The image, its class and the boxes of its crops."""
    ax.imshow(image, interpolation="nearest")
    ax.set_title(example["name"], loc="center")
    for i, crop in enumerate(example["crops"]):
        top, left, height, width = crop["box"]
        colour = FRAMES[i % len(FRAMES)]
        ax.add_patch(Rectangle((left - 0.5, top - 0.5), width, height, fill=False, ec=colour, lw=1.8, clip_on=False))


def _picture(ax: Axes, picture: Picture, colour: str) -> None:
    ax.set_axis_on()
    ax.imshow(picture, interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set(visible=True, color=colour, linewidth=2.5)


def _answers(ax: Axes, top: Sequence[Mapping[str, Any]], true: str) -> None:
    """Horizontal bars of probabilities, the largest on top, with names beside them."""
    for i, answer in enumerate(top):
        right = answer["name"] == true
        ax.barh(-i, answer["probability"], 0.75, color=RIGHT if right else WRONG)
        ax.text(0.015, -i, short(answer["name"]), va="center", size=7.5, color=INK, weight="bold" if right else None)
        ax.text(1.0, -i, percent(answer["probability"]), va="center", ha="right", size=7.5, color=INK)
    ax.set(xlim=(0, 1), ylim=(-len(top) + 0.5, 0.5))


def percent(share: float) -> str:
    """A share as a whole number of percent."""
    return "< 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


def short(name: str, length: int = 16) -> str:
    """A class name that fits under a crop."""
    return name if len(name) <= length else name[: length - 1].rstrip(" ,") + "…"
