"""One folder per class: ImageNet-1K, ImageWoof, Imagenette, anything."""

from hald.datasets.raw import RawData, class_folders, files_split, image_files, require_root
from hald.datasets.spec import DatasetSpec
from hald.errors import UserError


def read(spec: DatasetSpec) -> RawData:
    """One folder per class below each split; classes in sorted order."""
    root = require_root(spec)
    found = {split: class_folders(root / split, spec) for split in (spec.train, spec.test)}
    classes = sorted(found[spec.train])
    different = sorted(set(classes) ^ set(found[spec.test]))
    if different:
        raise UserError(
            f"dataset '{spec.name}': class folder '{different[0]}' is in only one of {root / spec.train} and "
            f"{root / spec.test} ({len(different)} such); the two splits need the same classes"
        )
    train, test = (
        files_split([(path, classes.index(name)) for name in classes for path in image_files(found[split][name])])
        for split in (spec.train, spec.test)
    )
    return RawData(classes, train, test)
