"""The plan: from the config to the work there is. Imports neither torch nor Snakemake."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hald.code_digests import code_digests
from hald.config.paper import read_paper
from hald.config.published import read_published
from hald.config.read import load_config
from hald.keys import canonical
from hald.plain import to_dict
from hald.plan.disk import Disk
from hald.plan.ledger import code_names
from hald.plan.model import Code, Plan
from hald.plan.planning import build
from hald.progress.block_sizes import cut_blocks

__all__ = ["SOURCE", "Plan", "frozen_plan", "make_plan"]

VARIABLE = "HALD_PLAN"
FROZEN = Path(".snakemake/hald")
SOURCE = Path(__file__).parents[1]


def make_plan(raw: Mapping[str, Any] | None = None, root: Path = Path()) -> Plan:
    """The plan of a config (default: config/config.yaml below `root`), its units cut into jobs by what is there."""
    config, experiments = load_config(None if raw is None else dict(raw), root)
    digests = code_digests()
    code = Code(digests, code_names(digests))
    plan = build(config, experiments, code, read_published(root), read_paper(root))
    disk = Disk(plan.results, plan.stores)
    plan = replace(plan, kept=_still_wanted(plan, disk))
    return replace(plan, blocks=cut_blocks(plan, disk))


def _still_wanted(plan: Plan, disk: Disk) -> dict[str, int]:
    """Runs whose students are kept: those that an analysis which is not there yet looks at."""
    open_analyses = [spec for key, spec in plan.analyses.items() if not disk.has(plan.files("analysis", key)[0])]
    runs = {subject.run for spec in open_analyses for subject in spec.looked_at}
    return {run: seeds for run, seeds in plan.kept.items() if run in runs}


def frozen_plan(raw: Mapping[str, Any], is_main: bool) -> Plan:
    """The plan for Snakemake: made and frozen by the main process, read by its jobs.

    Source edited or settings changed in the middle of a run thus never move a running job's target, and neither does a
    disk that has moved on. A job that does not get the variable (an executor that passes no environment) makes the plan
    itself.
    """
    frozen = os.environ.get(VARIABLE)
    if not is_main and frozen and Path(frozen).is_file():
        return Plan.thaw(Path(frozen))
    # jobs in environments that have no copy of the package (conda) find it here
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH", "")]))
    plan = make_plan(raw)
    digest = hashlib.sha256(canonical(to_dict(plan)).encode()).hexdigest()[:10]
    path = FROZEN / f"{digest}.json"
    if is_main or not path.exists():
        plan.freeze(path)
    os.environ[VARIABLE] = str(path)
    return plan
