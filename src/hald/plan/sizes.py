"""How many units a job does: as many as last `jobs.target_minutes`, going by the timings that are there.

A size never changes a result: units (views, seeds, classes, images of a chunk) are the same whoever computes them. The
sizes are part of the frozen plan, so that a timing recorded in the middle of a run moves no job's target.
"""

import math
from collections.abc import Iterator

from hald.plan.model import Plan
from hald.plan.summary import recorded_rates

# Without a timing: sizes that suit small networks on one GPU.
VIEWS, SEEDS, UNITS = 20, 3, 10
PIECES, SHORTEST = 4, 60.0  # work is shared by four jobs where each of them still lasts a minute


def block_sizes(plan: Plan) -> dict[str, int]:
    """Units per job of every key that is made in units."""
    rates = recorded_rates(plan) if any(fixed is None for _, _, fixed, _, _ in _kinds(plan)) else {}
    sizes = {}
    for key, count, fixed, usual, (kind, work) in _kinds(plan):
        seconds = rates[kind] * work if kind in rates else None
        sizes[key] = fixed or (fitting(seconds, count, plan.jobs.target_minutes * 60) if seconds else usual)
    return sizes


def _kinds(plan: Plan) -> Iterator[tuple[str, int, int | None, int, tuple[str, float]]]:
    """Key, number of units, size that the user fixed, size without timings, effort of one unit."""
    for key, ranking in plan.rankings.items():
        yield key, plan.unit_counts[key], plan.jobs.units_per_job, UNITS, ranking.effort
    for key, units in plan.units.items():
        yield key, plan.unit_counts[key], plan.jobs.units_per_job, UNITS, units.effort
    for key, labels in plan.labels.items():
        yield key, plan.views[key], plan.jobs.views_per_job, VIEWS, labels.effort
    for key, run in plan.runs.items():
        yield key, plan.seeds[key], plan.jobs.seeds_per_job, SEEDS, run.effort


def fitting(seconds: float, count: int, target: float) -> int:
    """Units of `seconds` each that last `target`; fewer where that would leave too few jobs for `count` of them."""
    shared = max(math.ceil(count / PIECES), math.ceil(SHORTEST / seconds))
    return max(1, min(round(target / seconds), shared))
