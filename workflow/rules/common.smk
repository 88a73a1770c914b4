# The plan of this run, and the names that more than one rule file uses. Jobs of this run read the same frozen plan.

import os
import signal

from hald.errors import UserError
from hald.pipeline import frozen_plan
from hald.plan.edges import Edges
from hald.cluster.profile_check import check_profile, check_warning
from hald.cluster.slurm_plugin import make_patient
from snakemake.exceptions import WorkflowError

try:
    PLAN = frozen_plan(config, workflow.is_main_process)
except UserError as error:
    raise WorkflowError(str(error)) from None

if workflow.is_main_process:
    make_patient()
else:
    # Slurm's early warning of a time limit reaches every process of a job. It is meant for the script, which saves and
    # ends; the Snakemake around it has to live until then.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)

GRAPH = Edges(PLAN, os.environ["HALD_PLAN"], workflow, ancient)
RESULTS = PLAN.results
LOGS = f"{PLAN.results}/logs"
TIMES = f"{PLAN.results}/benchmarks"


envvars:
    "HALD_PLAN",


# a readable name has its dataset in front, and ends in its key
wildcard_constraints:
    dataset=r"[^/]+",
    teacher=r"[^/]+/[^/]+",
    weights=r"[^/]+/[^/]+/[^/]+",
    ranking=r"[^/]+/[^/]+",
    statistics=r"[^/]+/[^/]+",
    units=r"[^/]+/[^/]+",
    images=r"[^/]+/[^/]+",
    labels=r"[^/]+/[^/]+",
    run=r"[^/]+/[^/]+",
    analysis=r"[^/]+/[^/]+",
    block=r"\d{5}-\d{5}(\+\d+)?",
    table=r"[^/.]+",
    figure=r"[^/.]+",


def table_label(w):
    number = PLAN.tables[w.table].number
    return {"table": f"{w.table} (Table {number} of the paper)" if number else w.table}


def preview_label(w):
    key = PLAN.key("preview", w.images)
    spec = PLAN.images[key]
    return {"images": f"{w.images.partition('/')[0]}: {spec.method}, {spec.ipc} per class [{key}]"}


def check_resources(workflow):
    """Look at what the profile gives to rules, in a dry run too."""
    settings = workflow.resource_settings
    try:
        defaults = settings.default_resources or ()  # none without a profile
        check_profile(defaults, settings.overwrite_resources, [rule.name for rule in workflow.rules])
    except UserError as error:
        raise WorkflowError(str(error)) from None


def preflight(workflow):
    """Look at all that can be known before the first job starts, and at the queue: jobs of an earlier run, whose main
    process was killed, may be at the same work. Then make room for what is forced.
    """
    from pathlib import Path

    from hald.preflight import check
    from hald.jobs.job import Job
    from hald.cluster.queue import require_no_earlier_jobs

    jobs = [job for job in workflow.dag.needrun_jobs() if "job" in job.params.keys()]
    try:
        for job in jobs:
            check_warning(job.rule.name, job.resources.get("runtime"), job.resources.get("slurm_extra"))
        require_no_earlier_jobs(Path.cwd(), Path(LOGS))
        check(PLAN, [Job.read(job.params.job) for job in jobs])
        GRAPH.withdraw_forced([GRAPH.job_of(job.rule.name, job.wildcards_dict) for job in jobs])
    except UserError as error:
        raise WorkflowError(str(error)) from None
