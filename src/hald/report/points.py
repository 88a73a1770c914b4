"""Points of figures: the cells of a table, as figures look at them.

Points are rows of `hald.report.cells.cell_rows` (one per cell): `images`, `evaluation`, `slc_effective`,
`label_bytes`, `top1_mean`, `top1_std`, and where known `paper`, the published accuracy. Cells without a mean are left
out.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hald.errors import UserError

Point = Mapping[str, Any]
SLC = "Soft labels per class (SLC)"


def single(points: Sequence[Point], x: str) -> dict[tuple[str, float, str], Point]:
    """Finished cells by (images, x, evaluation). Different trainings at one place (IPCs, students) are not mixed up."""
    cells: dict[tuple[str, float, str], Point] = {}
    for point in points:
        key = (point["images"], point[x], point["evaluation"])
        if not known(point, "top1_mean"):
            continue
        if key in cells and cells[key]["run"] != point["run"]:
            raise UserError(f"two cells for {key[0]}, {x} {key[1]:g}, {key[2]}; draw each IPC and student apart")
        cells[key] = point
    return cells


def known(point: Point, field: str) -> bool:
    """Whether a point has a number in a field."""
    value = point.get(field)
    return value is not None and not math.isnan(value)


def spread(point: Point) -> float:
    """Standard deviation of a point over its seeds, 0 of a single one."""
    return float(point["top1_std"]) if known(point, "top1_std") else 0.0
