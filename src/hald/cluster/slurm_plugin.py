"""Snakemake's Slurm plugin, mended: a Slurm that is silent for a while, jobs that it forgets, words that it adds.

Version 2.8 of the plugin waits for ever after each of them. When looks at the queue fail, as they do while a controller
is started anew, it forgets all its jobs. A job that Slurm does not name it believes to be on its way into the database.
It does not know the state of a job that sacct calls `CANCELLED by 1000`. And it asks sacct where that is installed
and the queue forgets soon, whether there is accounting or not.
"""

import asyncio
import functools
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from hald.cluster.queue import states_of_run, unfiltered


def make_patient(pause: float = 10.0, patience: float = 60.0) -> None:
    """Wrap the plugin's looks at the queue, if it is in use: ask again after `pause` seconds until Slurm answers.

    What became of a job that no answer has named for `patience` seconds is found out without them. A user's own
    defaults for squeue and sacct are forgotten: they could hide jobs.
    """
    plugin: Any = sys.modules.get("snakemake_executor_plugin_slurm")
    if plugin is None or hasattr(plugin, "patient"):
        return
    for name in os.environ.keys() - unfiltered(os.environ).keys():
        del os.environ[name]
    lost = LostJobs(patience)
    plugin.query_job_status = _asked_again(plugin.query_job_status, lost, pause)
    plugin.get_min_job_age = _remembered(plugin.get_min_job_age)
    plugin.is_query_tool_available = _with_accounting(plugin.is_query_tool_available)
    plugin.Executor.check_active_jobs = _watched(plugin.Executor.check_active_jobs, lost)
    plugin.patient = True


class LostJobs:
    """Jobs that are waited for, by number, and since when Slurm's answers have not named them."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.run = ""  # the name that the plugin gives to all jobs of a run
        self.jobs: dict[str, Any] = {}
        self.missing: dict[str, float] = {}

    def complete(self, states: dict[str, str], logger: Any) -> None:
        """Add the states of jobs that have been missing for too long, where they can be known."""
        now = time.monotonic()
        self.missing = {number: self.missing.get(number, now) for number in self.jobs if number not in states}
        lost = [number for number, since in self.missing.items() if now - since >= self.patience]
        queue = states_of_run(self.run) if lost else None
        if queue is None:
            return
        for number in lost:
            if number in queue:  # its word may be newer than the database's
                states[number] = queue[number]
            else:
                states[number] = self._outcome(number)
                logger.warning(f"Slurm has forgotten job {number}; taken for {states[number].lower()}")

    def _outcome(self, number: str) -> str:
        """Whether a job did its work. Outputs appear whole: those that are there are right."""
        done = all(Path(path).exists() for path in self.jobs[number].job.output)
        return "COMPLETED" if done else "FAILED"


def _watched(check: Callable[..., AsyncIterator[Any]], lost: LostJobs) -> Callable[..., AsyncIterator[Any]]:
    """The plugin's check of all active jobs, so that it is known which these are."""

    async def watched(executor: Any, active_jobs: list[Any]) -> AsyncIterator[Any]:
        if active_jobs:  # before there are any, the executor may not be set up, and its run has no name
            lost.run = executor.run_uuid
        lost.jobs = {job.external_jobid: job for job in active_jobs}
        async for job in check(executor, active_jobs):
            yield job

    return watched


def _asked_again(
    ask: Callable[..., Awaitable[Any]], lost: LostJobs, pause: float
) -> Callable[[str, Any], Awaitable[Any]]:
    """The plugin's look at the queue or the database, until there is an answer."""

    async def asked_again(command: str, logger: Any) -> Any:
        silent = False
        while (answer := await ask(command, logger))[0] is None:
            if not silent:
                logger.warning(
                    f"Slurm does not answer (`{command.split()[0]}` fails); its jobs go on. Asking again ..."
                )
            silent = True
            await asyncio.sleep(pause)
        states = {number: state.partition(" ")[0] for number, state in answer[0].items()}  # CANCELLED by 1000
        lost.complete(states, logger)
        return states, answer[1]

    return asked_again


def _remembered(ask: Callable[[], int | None]) -> Callable[[], int | None]:
    """How long the queue remembers jobs, from the last answer there was.

    Without one the plugin changes to `sacct`, which has nothing to say where there is no accounting.
    """
    last: list[int | None] = [None]

    def remembered() -> int | None:
        answer = ask()
        last[0] = last[0] if answer is None else answer
        return last[0]

    return remembered


def _with_accounting(ask: Callable[[str], bool]) -> Callable[[str], bool]:
    """Whether a tool is there; of sacct, whether it has a database to ask."""

    @functools.cache
    def with_accounting(tool: str) -> bool:
        return ask(tool) and (tool != "sacct" or not _says_disabled())

    return with_accounting


def _says_disabled() -> bool:
    """Whether sacct says that this cluster keeps no accounts. A database that is slow is there."""
    try:
        done = subprocess.run(["sacct", "-X", "--noheader"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "accounting storage is disabled" in done.stderr.lower()
