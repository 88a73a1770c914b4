"""Image sets for other tools: a folder per class, or parquet in the Hugging Face image layout; and back."""

import io
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from hald.datasets.reader import open_dataset
from hald.errors import UserError
from hald.files import explained, file_digest, filled, write_atomic
from hald.jobs.job import Job
from hald.synthesis.class_folders import folder_digest
from hald.synthesis.image_set import ImageSet
from hald.synthesis.methods.external import compute as external
from hald.synthesis.spec import FromFolder, ImagesSpec

ROW_GROUP = 1000


def _png(pixels: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0))).save(buffer, format="PNG")
    return buffer.getvalue()


def _files(images: ImageSet) -> Iterator[tuple[int, str, bytes]]:
    """Label, path and PNG bytes of every image."""
    for label, name in enumerate(images.classes):
        for k, pixels in enumerate(images.of_class(label)):
            yield label, f"{_safe(name)}/class{label:05d}_id{k:05d}.png", _png(pixels)


def _safe(name: str) -> str:
    if re.fullmatch(r"[^/\\\0]+", name) and name not in (".", ".."):
        return name
    raise UserError(f"class '{name}' cannot be the name of a folder; export as parquet instead")


def export_folder(images: ImageSet, target: Path) -> int:
    """One folder per class, PNG files, all or none; how many were written. `target` must not exist or be empty."""
    count = 0
    with explained(f"cannot export to {target}"), filled(target) as folder:
        for _, name, content in _files(images):
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            count += 1
    return count


def export_parquet(images: ImageSet, target: Path, split: str = "train") -> int:
    """`<split>.parquet` in the Hugging Face image layout, which `datasets` and this project's own reader open."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = target / f"{split}.parquet"
    if path.exists():
        raise UserError(f"{path} exists already; name a new folder")
    features = {"image": {"_type": "Image"}, "label": {"names": images.classes, "_type": "ClassLabel"}}
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    schema = pa.schema([("image", struct), ("label", pa.int64())], metadata=metadata)
    count = 0

    def write(temporary: Path) -> None:
        nonlocal count
        with pq.ParquetWriter(temporary, schema) as writer:
            rows: list[dict[str, object]] = []
            for label, name, content in _files(images):
                rows.append({"image": {"bytes": content, "path": name}, "label": label})
                count += 1
                if len(rows) == ROW_GROUP:
                    writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                    rows.clear()
            if rows:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))

    write_atomic(path, write)
    return count


def import_folder(source: Path, dataset_folder: Path, target: Path, ipc: int, teacher: Path | None) -> None:
    """Make an image set of a foreign folder; a teacher, where given, grades it."""
    if target.exists():
        raise UserError(f"{target} exists already; imports never change a set")
    dataset = open_dataset(dataset_folder)
    spec = ImagesSpec(
        method="external",
        dataset=dataset.digest[:10],
        teachers=(file_digest(teacher / "teacher.safetensors")[:10],) if teacher else (),
        classes=len(dataset.classes),
        ipc=ipc,
        size=dataset.size,
        source=FromFolder(folder_digest(source)),
        threads=torch.get_num_threads(),
        path=str(source),
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    made_from = {spec.dataset: dataset_folder} | ({spec.teachers[0]: teacher} if teacher else {})
    try:
        external.make(Job(spec, target, {0: (target / "image_set.json",)}, made_from, partial))
    finally:
        shutil.rmtree(partial, ignore_errors=True)
