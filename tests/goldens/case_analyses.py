"""Every kind of analysis, on a trained student of tiny images."""

import json
from collections.abc import Iterator
from typing import Any

from bench import Bench, cases, leaves, stored

KINDS: dict[str, dict[str, Any]] = {
    "lvsd": {"samples": 4, "crops": 3},
    "crop_consistency": {"evaluations": ["it"], "samples": 7},
    "reference_consistency": {"evaluations": ["it"], "reference": "soft_only", "reference_slc": 2, "crops": 3},
    "teacher_consistency": {"evaluations": ["it"], "crops": 3},
    "gradients": {"epochs": 2},
    "updates": {"evaluations": ["it"]},
    "landscape": {"evaluations": ["it", "soft_only"], "resolution": 3},
    "embedding": {"evaluations": ["it"], "samples": 2},
    "theory": {"evaluations": ["it"], "slc": 8},
    "drift": {"slc": 8, "samples": 2, "crops": 3},
    "storage": {},
}


@cases({kind: (f"analysis.{kind}",) for kind in KINDS}, **{kind: (kind, options) for kind, options in KINDS.items()})
@stored
def analysis(bench: Bench, variant: tuple[str, dict[str, Any]]) -> Iterator[tuple[str, object, float]]:
    """All numbers that it finds."""
    kind, options = variant
    chain = bench.chain(
        slc=8,
        evaluation={"order": "soft-hard-soft", "hard_epochs": 2, "epochs": 6, "lr": 0.02, "kd_scale": "T2"},
        teacher="adamw",
        analyses={"study": {"kind": kind, "images": ["set"], "ipc": [2], "seed": 11} | options},
    )
    found = json.loads((chain.only("analysis") / "analysis.json").read_text())
    for number, subject in enumerate(found["subjects"]):
        for path, value in leaves(subject):
            if isinstance(value, int | float) and path[0] != "place" and "mb" not in path[-1]:
                yield ".".join((str(number), *path)), value, 2e-4 * max(abs(value), 1e-3)
