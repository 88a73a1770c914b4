"""Resources that a profile gives to rules: what Snakemake and Slurm would pass over in silence."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from hald.errors import UserError

# What Slurm's plugin and other executors know. Others are allowed: Snakemake counts them.
KNOWN = (
    "account",
    "clusters",
    "constraint",
    "cpus_per_gpu",
    "cpus_per_task",
    "disk_mb",
    "gpu",
    "gpu_model",
    "gres",
    "mem_mb",
    "mem_mb_per_cpu",
    "nodes",
    "qos",
    "reservation",
    "runtime",
    "slurm_account",
    "slurm_extra",
    "slurm_partition",
    "tasks",
    "tasks_per_gpu",
    "tmpdir",
)


def check_profile(defaults: Iterable[str], resources: Mapping[str, Iterable[str]], rules: Iterable[str]) -> None:
    """Refuse resources of rules that do not exist, and names that look like a misspelled resource.

    `defaults` are the names under `default-resources`, `resources` those of each rule under `set-resources`.
    """
    rules = sorted(rules)
    for rule in resources:
        if rule not in rules:
            raise UserError(f"the profile gives resources to rule '{rule}', which does not exist{_near(rule, rules)}")
    whose = {"every rule": defaults} | {f"rule '{rule}'": given for rule, given in resources.items()}
    for who, given in whose.items():
        for name in given:
            if name not in KNOWN and (near := _near(name, KNOWN)):
                raise UserError(f"the profile gives {who} the resource '{name}'{near}")


def _near(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f". Did you mean '{found[0]}'?" if found else ""


def check_reruns(triggers: Iterable[str], incomplete: bool) -> None:
    """Refuse settings of Snakemake under which it makes finished work again, or forgets what is missing behind it."""
    if set(triggers) != {"mtime"}:
        raise UserError(
            f"Snakemake shall run jobs again for changes of {', '.join(sorted(triggers))}; the keys in the paths know "
            f"such changes, and a teacher that was removed would make its images again. Add `--rerun-triggers mtime`, "
            f"or use profiles/default, which says so"
        )
    if incomplete:
        raise UserError(
            "--rerun-incomplete (in a profile: rerun-incomplete) begins finished parts of killed jobs anew and can "
            "hide other missing work. Leave it out: jobs go on from what is whole by themselves"
        )


def check_warning(rule: str, minutes: Any, extra: Any) -> None:
    """Refuse a time limit that is over before the early warning is due: the job would save and end at its start."""
    lead = re.search(r"--signal=\S*USR1@(\d+)", str(extra))
    if lead and isinstance(minutes, int | float) and 60 * minutes <= int(lead[1]):
        raise UserError(
            f"rule '{rule}' has a time limit of {minutes:g} minutes and is warned {lead[1]} s before its end, that is "
            f"at once. Give it a longer `runtime`, or `slurm_extra: --signal=USR1@...` a smaller number"
        )
