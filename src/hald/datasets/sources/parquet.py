"""Parquet files in the Hugging Face image layout."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from hald.datasets.raw import RawData, RawSplit, require_root
from hald.datasets.spec import DatasetSpec
from hald.errors import UserError
from hald.numerics.random_streams import Ints


def read(spec: DatasetSpec) -> RawData:
    """Parquet in the Hugging Face image layout: struct image{bytes, path}, integer label, names in the metadata."""
    import pyarrow.parquet as pq

    root = require_root(spec)
    splits, names = [], []
    for split in (spec.train, spec.test):
        files = sorted(
            [*root.glob(f"{split}.parquet"), *root.glob(f"{split}-*.parquet"), *root.glob(f"data/{split}-*.parquet")]
        )
        if not files:
            raise UserError(f"dataset '{spec.name}': no {split}.parquet or {split}-*.parquet in {root}")
        tables = [pq.read_table(file, memory_map=True) for file in files]
        image, label, classes = _huggingface_columns(tables[0].schema.metadata or {}, files[0])
        names.append(classes)
        column = [chunk.field("bytes") for table in tables for chunk in table[image].chunks]
        labels = np.concatenate([table[label].to_numpy() for table in tables]).astype(np.int64)
        splits.append(_chunked_split(column, labels, f"{root.name}/{split}"))
    if names[0] != names[1]:
        raise UserError(f"dataset '{spec.name}': the class names of {spec.train} and {spec.test} differ in {root}")
    return RawData(names[0], *splits)


def _huggingface_columns(metadata: dict[bytes, bytes], file: Path) -> tuple[str, str, list[str]]:
    """Image column, label column and class names from the schema's `huggingface` metadata."""
    features: dict[str, Any] = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    image = next((name for name, kind in features.items() if kind.get("_type") == "Image"), None)
    label = next((name for name, kind in features.items() if kind.get("_type") == "ClassLabel"), None)
    if image is None or label is None:
        raise UserError(
            f"{file}: the schema metadata has no `huggingface` entry with an Image and a ClassLabel feature "
            f"(found features: {sorted(features) or 'none'}); write it with the datasets library's to_parquet"
        )
    return image, label, list(features[label]["names"])


def _chunked_split(chunks: list[Any], labels: Ints, name: str) -> RawSplit:
    starts = np.cumsum([0] + [len(chunk) for chunk in chunks])

    def read(i: int) -> bytes:
        chunk = int(np.searchsorted(starts, i, side="right")) - 1
        content: bytes = chunks[chunk][i - int(starts[chunk])].as_py()
        return content

    return RawSplit(labels, read, lambda i: f"{name} row {i}")
