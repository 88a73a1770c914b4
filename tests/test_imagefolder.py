"""Folders of distilled images: ImageFolder's order, and class lists that are checked."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision.datasets import ImageFolder

from hald.errors import UserError
from hald.labels.imagefolder import class_list, given_images, read_folder

CLASSES = ["cat", "dog", "emu"]


def paint(path: Path, value: int, shape: tuple[int, int] = (8, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((*shape, 3), value, dtype=np.uint8)).save(path)


def numbered(folder: Path, pattern: str, ipc: int = 2) -> Path:
    for label in range(3):
        for number in range(ipc):
            paint(folder / pattern.format(c=label, i=number), 60 * label + number)
    return folder


PATTERNS = {"sre2l": "new{c:03d}/class{c:03d}_id{i:03d}.png", "rded": "{c:05d}/{i}.png", "bmp": "{c:05d}/x_{i}.BMP"}


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_the_order_is_imagefolders(pattern: str, tmp_path: Path) -> None:
    images, classes = read_folder(numbered(tmp_path, pattern, 12), CLASSES)
    theirs = ImageFolder(str(tmp_path))
    assert classes == CLASSES
    assert np.array_equal(images, np.stack([np.asarray(image).transpose(2, 0, 1) for image, _ in theirs]))
    assert [label for _, label in theirs] == np.repeat(range(3), 12).tolist()
    if pattern.startswith("{c:05d}/{i}"):
        assert images[2].max() == 10  # 0.png, 1.png, 10.png: sorted as text


def test_files_in_folders_below_a_class_are_ordered_likewise(tmp_path: Path) -> None:
    for number, name in enumerate(["a/z/1.png", "a/b/2.png", "a/3.png", "b/1.png", "b/y/2.png", "b/c/3.jpeg"]):
        paint(tmp_path / name, 40 * number)
    (tmp_path / "a/notes.txt").write_text("no image")
    images, classes = read_folder(tmp_path, None)
    assert classes == ["a", "b"]
    assert np.array_equal(
        images, np.stack([np.asarray(image).transpose(2, 0, 1) for image, _ in ImageFolder(tmp_path)])
    )


def refused(match: str, folder: Path, classes: list[str] | None) -> None:
    with pytest.raises(UserError, match=match):
        given_images(folder, classes)


def test_numbers_need_a_class_list_that_fits(tmp_path: Path) -> None:
    folder = numbered(tmp_path / "x", PATTERNS["sre2l"])
    refused(r"are numbers \(new000, ...\), which do not name classes; give the class list with --classes", folder, None)
    refused(
        r"no folder for class 3 \('fox'\) in .*: found 3 folders \(new000 to new002\).* 4", folder, [*CLASSES, "fox"]
    )
    refused("has a folder for class 2, which the class list does not have", folder, CLASSES[:2])
    (folder / "new001").rename(folder / "new007")
    refused(r"no folder for class 1 \('dog'\)", folder, CLASSES)


def test_numbers_that_do_not_sort_are_refused(tmp_path: Path) -> None:
    for label in range(11):
        paint(tmp_path / f"{label}/0.png", label)
    refused(r"not numbered in the order in which they sort \(0, 1, 10, ...\)", tmp_path, [f"c{i}" for i in range(11)])


def test_named_folders_must_be_the_class_list(tmp_path: Path) -> None:
    for name in CLASSES:
        paint(tmp_path / name / "0.png", 1)
    assert given_images(tmp_path, None)[1] == CLASSES
    assert given_images(tmp_path, CLASSES)[1] == CLASSES
    refused("there is no folder for class 'fox'", tmp_path, [*CLASSES, "fox"])
    refused("there is a folder 'emu' that is no class", tmp_path, CLASSES[:2])
    refused(
        "class order .* number 0 is 'cat'.* the class list has .* number 0 is 'emu'.*sorted", tmp_path, CLASSES[::-1]
    )


def test_unequal_classes_and_sizes_are_named(tmp_path: Path) -> None:
    folder = numbered(tmp_path / "x", PATTERNS["rded"])
    (folder / "00002/1.png").unlink()
    refused(r"00002 \(class 'emu'\) has 1 images, .*00000 has 2; every class needs the same number", folder, CLASSES)
    paint(folder / "00002/1.png", 0, (9, 9))
    refused(r"image .*00002/1.png is 9 x 9, .*00000/0.png is 8 x 8; all images need one size", folder, CLASSES)
    paint(folder / "00000/0.png", 0, (8, 9))
    refused(r"00000/0.png is 9 x 8; distilled images are squares", folder, CLASSES)
    (folder / "00000/0.png").write_bytes(b"no image")
    refused("cannot decode image .*00000/0.png", folder, CLASSES)


def test_what_is_no_images_at_all(tmp_path: Path, real_set: Path) -> None:
    refused("is neither an image set .* nor a folder of images", tmp_path / "nothing", None)
    refused("there are no folders in", tmp_path, None)
    (tmp_path / "a").mkdir()
    refused(r"a \(class 'a'\) has 0 images", tmp_path, None)
    refused("image set .* has class order .* the class list has", real_set, CLASSES)
    assert given_images(real_set, None)[1] == [str(i) for i in range(10)]


def test_class_lists(tmp_path: Path) -> None:
    text, json, bad = (tmp_path / name for name in ("c.txt", "manifest.json", "bad.json"))
    text.write_text("cat\ndog\n\nemu\n")
    json.write_text('{"classes": ["cat", "dog", "emu"], "size": 8}')
    bad.write_text('{"size": 8}')
    assert class_list(text, tmp_path) == class_list(json, tmp_path) == CLASSES
    assert class_list(None, tmp_path) is None
    (tmp_path / "classes.txt").write_text("a\nb\n")
    assert class_list(None, tmp_path) == ["a", "b"]
    for file in (bad, tmp_path / "none.txt"):
        with pytest.raises(UserError, match="no class list in .*give the class list with --classes"):
            class_list(file, tmp_path)
