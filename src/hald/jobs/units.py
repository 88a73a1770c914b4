"""The units of a job: claimed one by one, so that any number of jobs, runs and users may share a folder."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from hald.jobs.job import Job
from hald.jobs.log import Progress, log
from hald.jobs.signals import StopRequest

WAIT = 2.0  # seconds between looks at what another job has claimed


def missing_units(job: Job[Any], what: str) -> Iterator[int]:
    """The units to make, each claimed while the caller makes it. What others are making is waited for at the end."""
    waiting = job.missing_units()
    log.info("%d of %d %s to make", len(waiting), len(job.units), what)
    for unit in job.units.keys() - set(waiting):  # of a writer that died between its last file and the release
        job.claim_file(unit).unlink(missing_ok=True)
    progress = Progress(len(waiting), what)
    with StopRequest() as stop:
        while waiting:
            before = len(waiting)
            for unit in list(waiting):
                with job.claim(unit) as claim:
                    if not claim.granted:
                        log.info("%s %d is being made by %s; waiting for it", what, unit, claim.holder())
                    elif not job.has(unit):
                        yield unit
                if job.has(unit):
                    waiting.remove(unit)
                    progress.step()
                if waiting:
                    stop.check()
            if waiting and len(waiting) == before:
                time.sleep(WAIT)


@contextlib.contextmanager
def alone(job: Job[Any]) -> Iterator[None]:
    """Do work in one piece alone: hold its claim, after waiting for whoever has it."""
    with StopRequest() as stop:
        while True:
            stop.check()
            with job.claim(0) as claim:
                if claim.granted:
                    yield
                    return
            log.info("%s is being made by %s; waiting for it", job.folder.name, claim.holder())
            time.sleep(WAIT)
