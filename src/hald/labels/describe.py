"""What one label store is, in words: `hald labels info`."""

from typing import Any

import numpy as np

from hald.files import size, tree_bytes
from hald.labels.layout import Header
from hald.labels.released_export import require_cut_order
from hald.labels.store import LabelStore

UNKNOWN = "unknown (imported)"


def label_bytes(store: LabelStore) -> int:
    """Bytes of all whole views, markers included, images and teachers not."""
    arrays = sum(entry["bytes"] for view in store.views() for entry in store.marked_files(view).values())
    return int(arrays) + sum(store.marker(view).stat().st_size for view in store.views())


def describe(store: LabelStore) -> dict[str, Any]:
    """Everything about a store, by heading, in the order in which it is printed."""
    header, views = store.header, store.views()
    names = ", ".join(header.classes[:6]) + (" ..." if len(header.classes) > 6 else "")
    lines = {
        "store": store.folder,
        "format": header.format,
        "key": "none (imported)" if header.imported else header.key,
        "views": f"{len(views)} whole" + (f", up to number {views[-1]}" if views else ""),
        "images": f"{header.count} at {header.size} px, batches of {header.batch} ({header.batches} per view)",
        "classes": f"{len(header.classes)}: {names}",
        "soft labels": f"{len(views) * header.count} (SLC {len(views) * header.count // len(header.classes)})",
        "codec": header.codec + (f", {header.top_k} logits kept" if header.top_k else ""),
        "bytes": f"labels {size(label_bytes(store))}, everything {size(tree_bytes(store.folder))}",
    }
    lines |= _imported(store) if header.imported else _made(header)
    return lines | {"made with": ", ".join(f"{name} {version}" for name, version in header.versions.items())}


def _made(header: Header) -> dict[str, str]:
    """How labels of our own were made."""
    settings = header.view_settings
    return {
        "code": f"{header.code_name} (digest {header.code[:10]})",
        "teachers": ", ".join(f"{entry['arch']} ({entry['top1']:.2f} % top-1)" for entry in header.teachers),
        "BN statistics": header.spec.get("bn_mode", "unknown"),
        "crops": ", ".join(f"{name} {settings[name]}" for name in ("scale", "ratio", "flip", "mix", "seed")),
    }


def _imported(store: LabelStore) -> dict[str, str]:
    """What is known of imported labels: where they came from, and what their boxes themselves show."""
    require_cut_order(store)
    origin = store.header.spec["imported"]
    images = f", images from {origin['images']}" if origin.get("images") else ""
    who = f", by {origin['by']} on {origin['at']}" if "by" in origin else ""
    return {
        "imported": f"labels from {origin['from']}{images}{who}",
        "teachers": f"{UNKNOWN}: the store can be looked at, verified and exported, not grown",
        "BN statistics": UNKNOWN,
        "crops": f"scale, ratio, flip probability and seed {UNKNOWN}; {_seen(store)}",
        "mixing": f"CutMix, rectangles top, left, bottom, right (cut: {origin['cut']})",
        "labels": "half-precision probabilities at T = 20, kept as logits 20 log p",
    }


def _seen(store: LabelStore) -> str:
    """Crop areas and flips of the views that are there."""
    views = len(store.views())
    if not views:
        return "no views"
    parts = store.read(["box", "flip"], views)
    area = parts["box"][..., 2].astype(np.float64) * parts["box"][..., 3] / store.array("images").shape[-1] ** 2
    return (
        f"stored crops cover {area.min():.2f} to {area.max():.2f} of an image, {parts['flip'].mean():.0%} are flipped"
    )
