# The plan of this run, and the names that more than one rule file uses. Jobs of this run read the same frozen plan.

import os
import signal

import hald.plan
from hald.errors import UserError
from hald.plan.jobs import RuleJobs, unless_there
from hald.plan.outcome_jobs import OutcomeJobs
from hald.profile import check_profile, check_warning
from hald.slurm_plugin import make_patient
from snakemake.exceptions import WorkflowError

try:
    PLAN = hald.plan.frozen_plan(config, workflow.is_main_process)
except UserError as error:
    raise WorkflowError(str(error)) from None

if not workflow.is_main_process:
    # Slurm's early warning of a time limit reaches every process of a job. It is meant for the script, which saves and
    # ends; the Snakemake around it has to live until then.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)

JOBS = RuleJobs(PLAN, os.environ["HALD_PLAN"])
if workflow.is_main_process:
    JOBS.forget_tickets()
    make_patient()
OUTCOMES = OutcomeJobs(JOBS)
RESULTS = PLAN.results
LOGS = f"{PLAN.results}/logs"
TIMES = f"{PLAN.results}/benchmarks"


envvars:
    "HALD_PLAN",


wildcard_constraints:
    dataset=r"[^/]+",
    teacher=r"[^/]+/[^/]+",
    ranking=r"[^/]+/[^/]+",
    statistics=r"[^/]+/[^/]+",
    units=r"[^/]+/[^/]+",
    unit=r"\d{5}",
    images=r"[^/]+/[^/]+",
    labels=r"[^/]+/[^/]+",
    run=r"[^/]+/[^/]+",
    view=r"\d{5}",
    seed=r"\d+",
    stage=r"\d+",
    table=r"[^/.]+",
    figure=r"[^/.]+",
    analysis=r"[^/]+/[^/]+",


def check_resources(workflow):
    """Look at what the profile gives to rules, in a dry run too."""
    settings = workflow.resource_settings
    try:
        defaults = settings.default_resources or ()  # none without a profile
        check_profile(defaults, settings.overwrite_resources, [rule.name for rule in workflow.rules])
    except UserError as error:
        raise WorkflowError(str(error)) from None


def preflight(workflow):
    """Look at every dataset and weights file that this run will use before its first job starts.

    And at the queue: jobs of an earlier run, whose main process was killed, may be at the same work.
    """
    from pathlib import Path

    from hald.slurm import require_no_earlier_jobs
    from hald.data.preflight import check_classes, check_datasets, check_images, check_networks, check_packages
    from hald.data.preflight import check_stores

    jobs = list(workflow.dag.needrun_jobs())
    work = [job.params.work for job in jobs if "work" in job.params.keys()]
    try:
        for job in jobs:
            check_warning(job.rule.name, job.resources.get("runtime"), job.resources.get("slurm_extra"))
        check_stores(work)
        require_no_earlier_jobs(Path.cwd(), Path(LOGS))
        check_datasets(PLAN, {entry["dataset_key"] for entry in work if "dataset_key" in entry})
        check_classes(PLAN)
        check_networks(entry["spec"] for entry in work if entry["stage"] in ("squeeze", "evaluate"))
        check_images(work)
        check_packages(work)
    except UserError as error:
        raise WorkflowError(str(error)) from None
