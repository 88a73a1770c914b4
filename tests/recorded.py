"""Finished results that no training made, for tests of records and studies."""

from itertools import accumulate
from pathlib import Path
from typing import Any

from conftest import TINY_DEMO, copy_known
from hald.cli.records import plans_of
from hald.files import write_json
from hald.pipeline import Plan
from hald.plain import to_dict

EXPERIMENT = "studies/own/experiments/tiny"
FIGURES = "figures: {gain: {kind: gain, caption: What HALD gains, table: main}}\n"


def small_study(root: Path, *more: str) -> dict[str, Plan]:
    """A project with a study of one experiment, and of `more` ones that are the same: their plans."""
    copy_known(root / "config")
    names = [EXPERIMENT, *(f"studies/own/experiments/{name}" for name in more)]
    for name in names:
        (root / f"{name}.yaml").parent.mkdir(parents=True, exist_ok=True)
        (root / f"{name}.yaml").write_text(TINY_DEMO + (FIGURES if name == EXPERIMENT else ""))
    return plans_of({"experiments": names, "results": str(root / "r"), "stores": str(root / "s")}, root)


def finish(plan: Plan) -> None:
    """Records of the first table's students, 40 and 42 % for HALD and 30 and 32 % for others, and of the teacher."""
    for cell in plan.tables["main"].cells:
        for seed in range(2):
            write_record(plan, cell.run, seed, (40.0 if cell.column == ("hald",) else 30.0) + 2 * seed)
    (teacher,) = plan.teachers
    write_json(plan.file("squeeze", teacher), {"arch": "small/resnet10-w4", "top1": 91.23, "top5": 99.0})


def write_record(plan: Plan, run: str, seed: int, top1: float, code: str = "c" * 64) -> None:
    """A training that gained five points in each stage after the first and ended with `top1`."""
    starts = [0, *accumulate(stage.epochs or 1 for stage in plan.runs[run].stages)]
    curve = [
        {"epoch": end, "stage": "soft", "lr": 0.1, "loss": 0.5, "top1": top1 - 5 * left, "top5": 99.0}
        for left, end in zip(reversed(range(len(starts) - 1)), starts[1:], strict=True)
    ]
    record: dict[str, Any] = {"key": run, "format": 2, "code": code, "versions": {"torch": "2"}, "seed": seed}
    record |= {"top1": top1, "top5": 99.0, "best": {"epoch": starts[-1], "top1": top1}, "curve": curve}
    record |= {"stage_starts": starts[:-1], "label_bytes": 10, "slc_effective": 4.0, "spec": to_dict(plan.runs[run])}
    write_json(plan.file("evaluate", run, seed), record)
    timing = {"kind": "evaluate small/resnet10-w4@32", "device": "cpu", "seconds": 900.0}
    work = plan.runs[run].effort[1] / 2  # of its last leg: half of it
    write_json(timing_of(plan, run, seed), timing | {"work": work})


def timing_of(plan: Plan, run: str, seed: int) -> Path:
    """How long a training took."""
    return plan.folder("evaluate", run) / f"timings/seed-{seed}.json"
