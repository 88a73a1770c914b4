"""How many megabytes images and labels really need."""

from hald.analysis.subjects import Found, Lab

FULL_COVERAGE = 300  # label epochs that published storage is for
MEBI = 2**20


def measure(lab: Lab, number: int) -> Found:
    """Measured megabytes (2^20) of an image set, of one label view, and of 300 such views."""
    store = lab.store(lab.spec.subjects[number])
    views = store.views()
    view = sum(entry["bytes"] for view in views for entry in store.marked_files(view).values()) / len(views)
    held = sum(file.stat().st_size for file in (store.folder / "images").rglob("*") if file.is_file())
    raw = 2 * store.header.count * len(store.header.classes)
    return {
        "image_mb": held / MEBI,
        "view_mb": view / MEBI,
        "full_label_mb": FULL_COVERAGE * view / MEBI,
        "full_label_fp16_mb": FULL_COVERAGE * raw / MEBI,
        "views_measured": len(views),
    }
