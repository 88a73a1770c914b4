"""What every job does around its work: log, signals, errors in words, receipt."""

import contextlib
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hald.errors import UserError
from hald.files import explained
from hald.jobs.job import Job
from hald.jobs.log import duration, log, setup_logging
from hald.jobs.scratch import staged
from hald.jobs.signals import Interrupted, StopRequest
from hald.jobs.units import alone


def run(snakemake: Any) -> None:
    """Run the job of a rule; everything that is printed or raised ends in the rule's log."""
    with logged(Path(snakemake.log[0])):
        job = Job.read(snakemake.params.job)
        job.require_planned_code()
        with contextlib.nullcontext() if job.receipt else alone(job):
            if job.receipt or job.missing_units():  # Snakemake removed its outputs when it began
                staged(job).run()
                job.sign()
            else:
                log.info("another job has made it meanwhile")


@contextlib.contextmanager
def logged(path: Path) -> Iterator[None]:
    """Send output and errors to a log; exit with 1 after what a person has to know."""
    with path.open("a", buffering=1, encoding="utf-8") as stream:
        os.dup2(stream.fileno(), 2)
        os.dup2(stream.fileno(), 1)
        setup_logging(sys.stderr)
        start = time.monotonic()
        try:
            log.info("at work on %s", place())
            with StopRequest() as stop, explained("this job could not write its results"):
                yield
                noted = stop.signal
        except UserError as error:
            log.error("error: %s", error)
            sys.exit(1)
        except Interrupted as error:
            log.error("%s; what was done is kept, the next attempt goes on from there", error)
            sys.exit(1)
        except Exception:
            log.error("%s", traceback.format_exc())
            sys.exit(1)
        if noted is not None:
            log.info("%s came when all was done", signal.Signals(noted).name)
        log.info("done in %s", duration(time.monotonic() - start))


def place() -> str:
    """Where this job runs, for its log: host, and in Slurm the job's number and node."""
    number = os.environ.get("SLURM_JOB_ID")
    node = os.environ.get("SLURMD_NODENAME", "")
    return platform.node() + (f", Slurm job {number} {node}".rstrip() if number else "")
