"""What a label store is made of: its header, its arrays, and how an empty one is made."""

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import ZstdCodec
from zarr.codecs.numcodecs import PCodec

from hald.files import aside, link_tree, publish_dir
from hald.labels.codec import codec_of

FORMAT = 2
IMPORTED = "imported"  # in place of a key
MAX_VIEWS = 65536


@dataclass(frozen=True)
class Header:
    """What a store is about; kept as the group's attributes."""

    format: int
    key: str
    code: str  # digest of the code that made it
    code_name: str  # what its key was made from: the version of that code
    classes: list[str]
    count: int  # images
    batch: int
    size: int
    codec: str
    top_k: int
    images_digest: str
    dataset_digest: str  # of the real data that images and teachers come from
    spec: dict[str, Any]
    view_settings: dict[str, Any]
    teachers: list[dict[str, Any]]
    versions: dict[str, str]

    @property
    def imported(self) -> bool:
        """Whether the labels came from elsewhere: how they were drawn is not known, and there is no teacher."""
        return self.key == IMPORTED

    @property
    def batches(self) -> int:
        """Stored batches per view."""
        return -(-self.count // self.batch)


def create_store(folder: Path, header: Header, images: Path, teachers: list[Path]) -> None:
    """Make an empty store with its images (the array of an image set) and teachers (folders) in it, in one step."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = aside(folder)
    try:
        group = zarr.create_group(building, attributes=asdict(header))
        for name, entry in _layout(header).items():
            serializer = {"serializer": PCodec(level=8)} if entry.dtype == "int16" else {}
            group.create_array(
                name,
                shape=entry.shape,
                dtype=entry.dtype,
                chunks=entry.chunk,
                shards=entry.shard,
                fill_value=np.nan if entry.dtype.startswith("float") else 0,
                compressors=ZstdCodec(level=3, checksum=True),
                **serializer,  # type: ignore[arg-type]
            )
        link_tree(images / "images", building / "images")
        for number, teacher in enumerate(teachers):
            link_tree(teacher, building / "teachers" / str(number))
        publish_dir(building, folder, "zarr.json")
    finally:
        shutil.rmtree(building, ignore_errors=True)


@dataclass(frozen=True)
class _Entry:
    """One array: a view is exactly one file of it."""

    shape: tuple[int, ...]
    dtype: str
    chunk: tuple[int, ...]
    shard: tuple[int, ...] | None = None


def _layout(header: Header) -> dict[str, _Entry]:
    """All arrays by name. Wide ones are sharded: a reader may fetch some hundred rows of a view at a time."""
    n, batches = header.count, header.batches
    rows = header.batch * max(1, min(384 // header.batch, batches))
    shard = -(-n // rows) * rows
    codec = codec_of(header.codec)
    width = codec.width(len(header.classes), header.top_k)
    entries = {
        name: _Entry((MAX_VIEWS, n), dtype, (1, n))
        if name == "scale"
        else _Entry((MAX_VIEWS, n, width), dtype, (1, rows, width), (1, shard, width))
        for name, dtype in codec.dtypes.items()
    }
    return entries | {
        "image": _Entry((MAX_VIEWS, n), "uint32", (1, n)),
        "flip": _Entry((MAX_VIEWS, n), "uint8", (1, n)),
        "partner": _Entry((MAX_VIEWS, n), "uint16", (1, n)),
        "box": _Entry((MAX_VIEWS, n, 4), "uint16", (1, n, 4)),
        "lam": _Entry((MAX_VIEWS, batches), "float64", (1, batches)),
        "cut": _Entry((MAX_VIEWS, batches, 4), "uint16", (1, batches, 4)),
    }
