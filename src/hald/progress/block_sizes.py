"""How many units a job does: as many as last `jobs.target_minutes`, going by the timings that are there.

A size never changes a result: units (views, seeds, classes, images of a chunk) are the same whoever computes them. The
blocks are part of the frozen plan, so that a timing recorded in the middle of a run moves no job's target.
"""

import math

from hald.plan.blocks import Block, cut
from hald.plan.disk import Disk
from hald.plan.model import Plan
from hald.plan.stages import STAGES
from hald.progress.rates import recorded_rates

PIECES, SHORTEST = 4, 60.0  # work is shared by four jobs where each of them still lasts a minute


def cut_blocks(plan: Plan, disk: Disk) -> dict[str, tuple[Block, ...]]:
    """The jobs of every key that is made in units."""
    return {key: tuple(_cut(plan, disk, stage, key, size)) for (stage, key), size in block_sizes(plan).items()}


def _cut(plan: Plan, disk: Disk, stage: str, key: str, size: int) -> list[Block]:
    folder = str(plan.folder(stage, key))
    receipts = [name.removesuffix(".json") for name in disk.names(f"{folder}/done")]
    whole: dict[int, bool] = {}

    def is_whole(unit: int) -> bool:
        if unit not in whole:
            whole[unit] = all(map(disk.has, plan.files(stage, key, unit)))
        return whole[unit]

    return cut(plan.needed.get((stage, key), 0), size, receipts, is_whole)


def block_sizes(plan: Plan) -> dict[tuple[str, str], int]:
    """Units per job of every stage and key that is made in units."""
    in_blocks = {name: stage.blocks for name, stage in STAGES.items() if stage.blocks}
    fixed = {name: getattr(plan.jobs, blocks.setting) for name, blocks in in_blocks.items()}
    rates = recorded_rates(plan) if None in fixed.values() else {}
    sizes = {}
    for name, blocks in in_blocks.items():
        for key, spec in plan.specs[name].items():
            kind, work = spec.effort
            count, seconds = plan.needed.get((name, key), 0), rates.get(kind, 0.0) * work
            fits = fitting(seconds, count, plan.jobs.target_minutes * 60) if seconds else blocks.usual
            sizes[name, key] = fixed[name] or fits
    return sizes


def fitting(seconds: float, count: int, target: float) -> int:
    """Units of `seconds` each that last `target`; fewer where that would leave too few jobs for `count` of them."""
    shared = max(math.ceil(count / PIECES), math.ceil(SHORTEST / seconds))
    return max(1, min(round(target / seconds), shared))
