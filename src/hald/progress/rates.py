"""How long work of each kind takes, by the timings that finished work has beside it."""

import math
from collections import defaultdict
from pathlib import Path

from hald.files import read_json
from hald.plan.model import Plan
from hald.plan.stages import STAGES


def recorded_rates(plan: Plan) -> dict[str, float]:
    """Seconds per unit of work of each kind on its fastest device, over all timing records of results and stores."""
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    work: dict[tuple[str, str], float] = defaultdict(float)
    for path in timing_files(plan):
        try:
            record = read_json(path)
            what = (record["kind"], record["device"])
            took, did = float(record["seconds"]), float(record["work"])
        except (OSError, ValueError, KeyError, TypeError):  # a timing is worth no complaint
            continue
        seconds[what] += took
        work[what] += did
    rates: dict[str, float] = {}
    for (kind, device), amount in work.items():
        if amount:
            rates[kind] = min(rates.get(kind, math.inf), seconds[kind, device] / amount)
    return rates


def timing_files(plan: Plan) -> list[Path]:
    """All timing records, whatever they are of: what others made in a shared folder counts too."""
    roots = (stage.folder.partition("{slug}")[0] for stage in STAGES.values() if stage.timed)
    folders = (Path(root.format(results=plan.results, stores=plan.stores)) for root in roots)
    return [path for folder in folders for path in folder.glob("*/*/timings/*.json")]
