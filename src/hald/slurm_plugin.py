"""Snakemake's Slurm plugin, made patient: a Slurm that is silent for a while, and one that forgets jobs.

Version 2.8 of the plugin waits for ever after either. When looks at the queue fail, as they do while a controller is
started anew, it forgets all its jobs; and a job that Slurm does not name it believes to be on its way into the
database.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from hald.slurm import states_of, unfiltered


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
    watch = Watch(patience)
    plugin.query_job_status = _asked_again(plugin.query_job_status, watch, pause)
    plugin.get_min_job_age = _remembered(plugin.get_min_job_age)
    plugin.Executor.check_active_jobs = _watched(plugin.Executor.check_active_jobs, watch)
    plugin.patient = True


class Watch:
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
        for number, since in self.missing.items():
            known = states_of(number, f"--name={self.run}") if now - since >= self.patience else None
            if known:  # the queue's word may be newer than the database's
                states[number] = known[0]
            elif known is not None:
                states[number] = self._outcome(number)
                logger.warning(f"Slurm has forgotten job {number}; taken for {states[number].lower()}")

    def _outcome(self, number: str) -> str:
        """Whether a job did its work. Outputs appear whole: those that are there are right."""
        done = all(Path(path).exists() for path in self.jobs[number].job.output)
        return "COMPLETED" if done else "FAILED"


def _watched(check: Callable[..., AsyncIterator[Any]], watch: Watch) -> Callable[..., AsyncIterator[Any]]:
    """The plugin's check of all active jobs, so that it is known which these are."""

    async def watched(executor: Any, active_jobs: list[Any]) -> AsyncIterator[Any]:
        watch.run = executor.run_uuid
        watch.jobs = {job.external_jobid: job for job in active_jobs}
        async for job in check(executor, active_jobs):
            yield job

    return watched


def _asked_again(
    ask: Callable[..., Awaitable[Any]], watch: Watch, pause: float
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
        watch.complete(answer[0], logger)
        return answer

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
