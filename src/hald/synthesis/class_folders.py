"""Folders of images made elsewhere: which file is which image of which class. Needs neither torch nor the dataset.

Known layouts: one folder per class with the class's name; `new<ccc>/class<ccc>_id<iii>.jpg` (SRe2L, LPLD, FADRM);
`<ccccc>/...` (RDED); or any folder names, which then stand for the classes in sorted order (ImageFolder).
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hald.datasets.raw import image_files
from hald.errors import UserError
from hald.files import file_digest

NUMBERED = re.compile(r"(?:new(\d{3,})|(\d{5}))")
IMAGE_ID = re.compile(r"_id(\d+)$")


@dataclass(frozen=True)
class Found:
    """Files of every class in class order, and how the folders were read: names, numbers or sorted."""

    files: list[list[Path]]
    order: str


def subfolders(root: Path) -> dict[str, Path]:
    """The folders in a folder by name, sorted."""
    return {path.name: path for path in sorted(root.iterdir()) if path.is_dir()}


def numbers_of(names: Iterable[str], pattern: re.Pattern[str]) -> list[int]:
    """The class number in each folder's name (the pattern's group that matches); none unless all have one."""
    matches = [pattern.fullmatch(name) for name in names]
    return [int(match[match.lastindex or 0]) for match in matches if match] if all(matches) else []


def missing_numbers(numbers: Iterable[int], classes: int) -> list[int]:
    """Class numbers without a folder."""
    return sorted(set(range(classes)) - set(numbers))


def find_images(root: Path, classes: int, ipc: int, names: list[str] | None = None) -> Found:
    """The first `ipc` images of each class, or a message that says what is missing.

    Without `names` (dataset not prepared yet) folders that are not numbered are only counted.
    """
    if not root.is_dir():
        raise UserError(f"there is no folder of images at {root}; correct `path` of the image set")
    folders = {name: path for name, path in subfolders(root).items() if not name.startswith(".")}
    ordered, order = _in_class_order(root, folders, classes, names)
    files = []
    for folder in ordered:
        found = sorted(image_files(folder), key=_image_order)
        if len(found) < ipc:
            raise UserError(
                f"{folder} has {len(found)} images, IPC {ipc} needs {ipc}; lower ipc or complete the folder"
            )
        files.append(found[:ipc])
    return Found(files, order)


def _in_class_order(
    root: Path, folders: dict[str, Path], classes: int, names: list[str] | None
) -> tuple[list[Path], str]:
    if names is not None and folders.keys() & set(names):
        missing = [name for name in names if name not in folders]
        if missing:
            raise UserError(f"{root} has no folder for class '{missing[0]}' ({len(missing)} of {classes} are missing)")
        return [folders[name] for name in names], "names"
    numbers = dict(zip(numbers_of(folders, NUMBERED), folders.values(), strict=False))
    if len(numbers) == len(folders) and numbers:
        if lacking := missing_numbers(numbers, classes):
            raise UserError(
                f"{root} has no folder for class number {lacking[0]} ({len(lacking)} of {classes} are missing)"
            )
        if len(numbers) > classes:
            raise UserError(f"{root} has {len(numbers)} class folders, the dataset has {classes} classes")
        return [numbers[i] for i in range(classes)], "numbers"
    if len(folders) != classes:
        raise UserError(
            f"{root} has {len(folders)} class folders (first '{min(folders, default='-')}'), the dataset has {classes} "
            f"classes; a class may be missing, or `path` is not the folder that holds the class folders"
        )
    return [folders[name] for name in sorted(folders)], "sorted"


def _image_order(path: Path) -> tuple[int, str]:
    """By the number after `_id`, where there is one, else by name."""
    match = IMAGE_ID.search(path.stem)
    return (int(match[1]) if match else 0, path.name)


def folder_digest(root: Path) -> str | None:
    """SHA-256 over names and bytes of all images below a folder; None where there is none."""
    if not root.is_dir():
        return None
    digest = hashlib.sha256()
    for folder in subfolders(root).values():
        for path in image_files(folder):
            digest.update(f"{folder.name}/{path.name}:{file_digest(path)}\n".encode())
    return digest.hexdigest()
