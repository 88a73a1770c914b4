"""Distilled images that come as files: one folder per class, read in the order of torchvision's ImageFolder.

Folders are named by class, or by class number: `new<ccc>/class<ccc>_id<iii>.png` (SRe2L and its successors) and
`<ccccc>/` (RDED). Numbers do not say which class they mean, so the class list has to be given.
"""

import json
import os
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hald.datasets import raw
from hald.datasets.decode import decode
from hald.errors import UserError
from hald.labels.released_export import CLASSES_FILE
from hald.same_origin import require_same_classes
from hald.synthesis.class_folders import missing_numbers, numbers_of, subfolders
from hald.synthesis.image_set import open_set

EXTENSIONS = (*raw.EXTENSIONS, ".pgm")  # torchvision's
NUMBERED = re.compile(r"(?:new)?(\d+)")
HOW = (
    "give the class list with --classes FILE (one name per line, or a JSON file with `classes`, such as manifest.json)"
)


def given_images(path: Path, classes: list[str] | None) -> tuple[NDArray[np.uint8], list[str]]:
    """Images (N, 3, S, S), class by class, and their classes: of one of our image sets, or of a folder of files."""
    if (path / "image_set.json").is_file():
        images = open_set(path)
        if classes is not None:
            require_same_classes(images.classes, f"image set {path}", classes, "the class list", "Give the right one.")
        return images.images(), images.classes
    if not path.is_dir():
        raise UserError(f"{path} is neither an image set (a folder with image_set.json) nor a folder of images")
    return read_folder(path, classes)


def class_list(file: Path | None, source: Path) -> list[str] | None:
    """Class names from a file (text, one per line, or JSON with `classes`), else those that an export left."""
    if file is None:
        file = source / CLASSES_FILE
        if not file.is_file():
            return None
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".json":
            return [str(name) for name in json.loads(text)["classes"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"no class list in {file} ({type(error).__name__}: {error}); {HOW}") from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_folder(folder: Path, classes: list[str] | None) -> tuple[NDArray[np.uint8], list[str]]:
    """All images below `folder`, as ImageFolder orders them, and the class list."""
    folders = subfolders(folder)
    if not folders:
        raise UserError(f"there are no folders in {folder}; expected one per class, with its images in it")
    names = list(folders)
    classes = _checked_classes(folder, names, classes)
    files = [_files(path) for path in folders.values()]
    counts = [len(part) for part in files]
    odd = next((i for i, count in enumerate(counts) if count != counts[0] or count == 0), None)
    if odd is not None:
        raise UserError(
            f"{folder / names[odd]} (class '{classes[odd]}') has {counts[odd]} images, {folder / names[0]} has "
            f"{counts[0]}; every class needs the same number"
        )
    return _pixels([path for part in files for path in part]), classes


def _files(folder: Path) -> list[Path]:
    """Image files at any depth: folders in order, then names in order."""
    return [
        Path(root, name)
        for root, _, names in sorted(os.walk(folder, followlinks=True))
        for name in sorted(names)
        if name.lower().endswith(EXTENSIONS)
    ]


def _checked_classes(folder: Path, names: list[str], classes: list[str] | None) -> list[str]:
    """The classes of sorted folder names; a given list must say the same, class by class."""
    numbers = numbers_of(names, NUMBERED)
    if numbers and classes != names:
        if classes is None:
            raise UserError(f"the folders in {folder} are numbers ({names[0]}, ...), which do not name classes; {HOW}")
        _check_numbers(folder, names, numbers, classes)
        return classes
    if classes is None:
        return names
    for name in sorted(set(classes) ^ set(names)):
        what = f"is no folder for class '{name}'" if name in classes else f"is a folder '{name}' that is no class"
        raise UserError(
            f"there {what} in {folder}: found {len(names)} folders, the class list has {len(classes)}; {HOW}"
        )
    remedy = "Images are taken in sorted order of their folders, so the class list has to be sorted too."
    require_same_classes(names, f"folder {folder}", classes, "the class list", remedy)
    return classes


def _check_numbers(folder: Path, names: list[str], numbers: list[int], classes: list[str]) -> None:
    """Numbered folders must be 0, 1, ... in sorted order, one for each class."""
    found = f"found {len(names)} folders ({names[0]} to {names[-1]}), the class list has {len(classes)} classes"
    if missing := missing_numbers(numbers, len(classes)):
        raise UserError(f"there is no folder for class {missing[0]} ('{classes[missing[0]]}') in {folder}: {found}")
    if extra := sorted(set(numbers) - set(range(len(classes)))):
        raise UserError(f"{folder} has a folder for class {extra[0]}, which the class list does not have: {found}")
    if numbers != sorted(numbers) or len(numbers) != len(classes):
        raise UserError(
            f"the folders in {folder} are not numbered in the order in which they sort ({names[0]}, {names[1]}, "
            f"{names[2]}, ...), so ImageFolder mixes the classes up; rename them with leading zeros"
        )


def _pixels(files: list[Path]) -> NDArray[np.uint8]:
    """(N, 3, S, S) of image files that all are squares of one size."""
    first = decode(files[0], str(files[0])).shape
    if first[0] != first[1]:
        raise UserError(f"image {files[0]} is {first[1]} x {first[0]}; distilled images are squares")
    images = np.empty((len(files), 3, *first[:2]), dtype=np.uint8)
    for i, path in enumerate(files):
        pixels = decode(path, str(path))
        if pixels.shape != first:
            raise UserError(
                f"image {path} is {pixels.shape[1]} x {pixels.shape[0]}, {files[0]} is {first[1]} x {first[0]}; "
                f"all images need one size"
            )
        images[i] = pixels.transpose(2, 0, 1)
    return images
