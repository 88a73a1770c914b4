# The plan of this run, and the names of the places that more than one rule file uses.

import os
from pathlib import Path

import hald.plan
from hald.errors import UserError
from hald.specs.base import to_dict
from snakemake.exceptions import WorkflowError

try:
    PLAN = hald.plan.frozen_plan(config, workflow.is_main_process)
except UserError as error:
    raise WorkflowError(str(error)) from None

RESULTS = PLAN.results
STORES = PLAN.stores
LOGS = f"{RESULTS}/logs"


envvars:
    "HALD_PLAN",


wildcard_constraints:
    dataset=r"[^/]+",
    teacher=r"[^/]+/[^/]+",
    images=r"[^/]+/[^/]+",
    labels=r"[^/]+/[^/]+",
    run=r"[^/]+/[^/]+",
    view=r"\d{5}",
    seed=r"\d+",
    table=r"[^/.]+",


def manifest(key):
    return ancient(str(PLAN.dataset_dir(key) / "manifest.json"))


def teacher_record(key):
    return ancient(str(PLAN.teacher_dir(key) / "teacher.json"))


def partial_dir(wildcards):
    """Where the unfinished work of a job is kept, whatever happens to it."""
    (slug,) = [value for name, value in wildcards.items() if name not in ("view", "seed")]
    return str(PLAN.partial(PLAN.key(slug)))


def preflight(workflow):
    """Look at every dataset that this run will use before its first job starts."""
    from hald.data.preflight import check_datasets

    needed = {job.params.dataset_key for job in workflow.dag.needrun_jobs() if "dataset_key" in job.params.keys()}
    try:
        check_datasets(PLAN, needed)
    except UserError as error:
        raise WorkflowError(str(error)) from None
