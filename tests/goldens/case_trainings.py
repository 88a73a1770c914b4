"""Students: every loss, every hand-over, every schedule, with their records."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import reference as ref
import torch
import zarr
from adapter import TRAINED
from bench import CLASSES, EVALUATION, Bench, Check, cases, drawn_view

SHS = {"order": "soft-hard-soft", "hard_epochs": 2, "epochs": 6}
# thresholds so close to what is watched that one per cent more moves the beginning of a stage (but for the accuracy,
# which goes in steps of 33 points here: test_train.py has its threshold by hand)
ADAPTIVE = {"name": "adaptive", "window": 1, "accuracy": 0.01, "entropy": 0.00249, "shortest": 2, "held_out": 1}
TRAININGS: dict[str, dict[str, Any]] = {
    "soft": {"order": "soft", "epochs": 4},
    "soft_seed": {"order": "soft", "epochs": 3, "seed": 1},
    "soft_replaced": {"order": "soft", "epochs": 3, "seed": 2, "sampling": "replacement", "kd_scale": "T2"},
    "soft_distinct": {"order": "soft", "epochs": 3, "seed": 1, "sampling": "epoch", "top_k": 2},
    "hard": {"order": "hard", "epochs": 3, "seed": 2, "hard_temperature": 2.5},
    "soft_hard_soft": SHS,
    "reset": SHS | {"handover": "reset", "kd_scale": "T2"},
    "matched": SHS | {"hard_temperature": "matched", "kd_scale": "T2", "smoothing": 0.8},
    "hard_soft": {"order": "hard-soft", "hard_epochs": 2, "epochs": 4},
    "gift": {"order": "soft", "epochs": 3, "loss": {"name": "gift", "weight": 0.4, "label": "own"}},
    "gift_mixed": {"order": "soft", "epochs": 3, "loss": {"name": "gift", "weight": 0.4, "label": "mixed"}},
    "joint": {"order": "soft", "epochs": 3, "loss": {"name": "joint", "weight": 0.3}, "smoothing": 0.7},
    "lpqld": {
        "order": "hard-soft",
        "hard_epochs": 1,
        "epochs": 6,
        "loss": {"name": "lpqld", "factor": 0.6, "every": 2, "floor": 4.0},
        "sampling": "epoch",
        "top_k": 2,
        "temperature": 9.0,
    },
    "adaptive": {"order": ADAPTIVE, "epochs": 9},
    "adaptive_labels": {"order": ADAPTIVE | {"divergence": 0.2185}, "epochs": 9},
}


def parts_of(changes: dict[str, Any]) -> tuple[str, ...]:
    """The parts of the package that a training uses: of an order as a mapping, the adaptive schedule."""
    schedule = "adaptive" if isinstance(changes["order"], dict) else "fixed"
    loss = () if changes["order"] == "hard" else (f"loss.{changes.get('loss', {'name': 'kl'})['name']}",)
    return (*TRAINED, *loss, f"schedule.{schedule}")


@cases({name: parts_of(changes) for name, changes in TRAININGS.items()}, **TRAININGS)
def training(bench: Bench, changes: dict[str, Any]) -> Iterator[Check]:
    """A student on 9 images in batches of four, four and one or three, its record with a point for every epoch."""
    changes = dict(changes)
    seed = changes.pop("seed", 0)
    e = EVALUATION | changes
    adaptive = isinstance(e["order"], dict)
    ipc, slc = (4, 12) if adaptive else (3, 8)
    batch = 5
    chain = bench.chain(
        ipc=ipc, slc=slc, seeds=seed + 1, evaluation=e, labels={"batch": batch, "codec": "f16"}, teacher="adamw"
    )
    (cell,) = chain.plan.tables["cells"].cells
    record = chain.record(cell.run, seed)
    folder = chain.store()
    store = zarr.open_group(folder, mode="r")
    images, count = store["images"][:], ipc * CLASSES
    per_view = math.ceil(count / batch)
    whole, rest = divmod(slc, ipc)
    pool = whole * per_view + rest * CLASSES // batch
    kinds = ["soft", "hard", "soft"] if adaptive else e["order"].split("-")
    soft = e["epochs"] - e.get("hard_epochs", 0)
    lengths = {"soft": [soft] if kinds.count("soft") < 2 else [soft // 2, soft - soft // 2], "hard": [e["epochs"]]}
    if len(kinds) > 1:
        lengths["hard"] = [e.get("hard_epochs", 0)]
    stages = [(kind, None if adaptive else lengths[kind].pop(0)) for kind in kinds]
    needed = math.ceil(pool / per_view)
    work = ref.Training(
        bench.data(),
        images,
        ipc,
        [drawn_view(v, count, {"batch": batch}, {}) for v in range(needed)],
        [torch.from_numpy(store["q"][v].astype(np.float64)) for v in range(needed)],
        batch,
        pool,
        stages,
        e["epochs"],
        {**e, "adaptive": e["order"] if adaptive else None},
        1,
    )
    expected = work.train(seed)
    for name, off in (("lr", 1e-9), ("top1", 1e-4), ("top5", 1e-4)):
        found, wanted = ([point[name] for point in one["curve"]] for one in (record, expected))
        yield Check(f"{name} of every epoch", found, wanted, off)
    ratios = [a["loss"] / b["loss"] for a, b in zip(record["curve"], expected["curve"], strict=True)]
    yield Check("loss of every epoch, as a share", ratios, [1.0] * len(ratios), 1e-4)
    yield Check("kinds", [p["stage"] for p in record["curve"]], [p["stage"] for p in expected["curve"]], 0)
    yield Check("epochs", [p["epoch"] for p in record["curve"]], [p["epoch"] for p in expected["curve"]], 0)
    yield Check("stage starts", record["stage_starts"], expected["stage_starts"], 0)
    yield Check("last epoch", [record["top1"], record["top5"]], [expected["top1"], expected["top5"]], 1e-4)
    best = [[r["best"]["epoch"], r["best"]["top1"]] for r in (record, expected)]
    yield Check("best epoch", *best, 1e-4)
    yield Check("temperature of the hard stage", record["hard_temperature"], expected["hard_temperature"], 1e-3)
    if e["order"] == "hard":
        yield Check("bytes and labels", [record["label_bytes"], record["slc_effective"]], [0, 0], 0)
        return
    sizes = []
    for v in range(needed):
        files = [p for name in ARRAYS for p in (folder / name / "c" / str(v)).rglob("*") if p.is_file()]
        sizes.append(sum(path.stat().st_size for path in files))
    part = pool % per_view
    measured = sum(sizes[: pool // per_view]) + (round(sizes[-1] * part / per_view) if part else 0)
    labels = (pool // per_view * count + min(part * batch, count)) / CLASSES
    yield Check("bytes", record["label_bytes"], measured, 0)
    yield Check("labels per class", record["slc_effective"], round(labels, 2), 1e-9)


ARRAYS = ("q", "image", "box", "flip", "partner", "lam", "cut")
