"""Tiny-ImageNet as it is distributed."""

from hald.datasets.raw import RawData, class_folders, files_split, image_files, require_root
from hald.datasets.spec import DatasetSpec
from hald.errors import UserError


def read(spec: DatasetSpec) -> RawData:
    """Tiny-ImageNet's official layout: train/<wnid>/images, val/images with val_annotations.txt; sorted WNIDs."""
    root = require_root(spec)
    folders = class_folders(root / "train", spec)
    classes = sorted(folders)
    annotations = root / "val" / "val_annotations.txt"
    if not annotations.is_file():
        raise UserError(f"dataset '{spec.name}': {annotations} is missing; it holds the labels of the test split")
    rows = [line.split("\t") for line in annotations.read_text().splitlines() if line]
    unknown = sorted({row[1] for row in rows} - set(classes))
    if unknown:
        raise UserError(
            f"dataset '{spec.name}': {annotations} names class '{unknown[0]}', which has no training folder"
        )
    train = [(path, i) for i, name in enumerate(classes) for path in image_files(folders[name] / "images")]
    test = [(root / "val" / "images" / row[0], classes.index(row[1])) for row in rows]
    return RawData(classes, files_split(train), files_split(test))
