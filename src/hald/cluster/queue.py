"""Slurm, as far as the workflow itself looks at it: jobs of this folder that are still in the queue.

A main Snakemake process that is killed leaves its jobs behind. They go on and their results are good, but a new run
would not know of them and would submit the same work again. So a run starts only when they are over.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hald.errors import UserError

OVER = (
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "REVOKED",
)
TRIES = 3
WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD")


@dataclass(frozen=True)
class QueuedJob:
    """One job in Slurm's queue."""

    number: str
    state: str
    node: str
    what: str  # rule and wildcards, as Snakemake's plugin notes them


def _squeue(*arguments: str) -> str | None:
    """What squeue prints; None where there is no Slurm, or none that answers."""
    if shutil.which("squeue") is None:
        return None
    command = ["squeue", "--noheader", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=unfiltered(os.environ))
    except (OSError, subprocess.TimeoutExpired):
        return None
    if "Invalid job id" in done.stderr:  # over for so long that Slurm has forgotten it
        return ""
    return done.stdout if done.returncode == 0 else None


def unfiltered(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without a user's own defaults for squeue and sacct, which could hide jobs."""
    return {name: value for name, value in environment.items() if not name.startswith(("SQUEUE_", "SACCT_"))}


def states_of_run(name: str) -> dict[str, str] | None:
    """The queue's word on all jobs of one name: number -> state; None if that cannot be known."""
    listing = _squeue("--states=all", "--format=%i|%T", f"--name={name}")
    return None if listing is None else dict(line.split("|") for line in listing.split())


def runs_now(number: str) -> bool | None:
    """Whether a job is in the queue or runs; None if that cannot be known."""
    states = _squeue("--states=all", "--format=%T", f"--jobs={number}")
    return None if states is None else any(state not in OVER for state in states.split())


def queued_jobs(folder: Path) -> list[QueuedJob]:
    """Our jobs that an earlier run of the project in `folder` submitted and that are not over."""
    found = []
    for line in _listing().splitlines():
        if line.count("|") < 4:  # the rest of a comment of several lines, not ours
            continue
        number, state, node, workdir, comment = line.split("|", 4)
        if (
            state not in OVER
            and comment.startswith(("rule_", "group_"))
            and Path(workdir).resolve() == folder.resolve()
        ):
            found.append(QueuedJob(number, state, node, comment))
    return found


def _listing(pause: float = 5.0) -> str:
    """All our jobs. A controller that is busy is asked again: no answer is not an empty queue."""
    if shutil.which("squeue") is None:
        return ""
    for attempt in range(TRIES):
        listing = _squeue("--me", "--states=all", "--format=%i|%T|%N|%Z|%k")
        if listing is not None:
            return listing
        if attempt + 1 < TRIES:
            print("Slurm does not answer; asking again ...", file=sys.stderr, flush=True)
            time.sleep(pause)
    raise UserError(
        "Slurm does not answer (`squeue --me` fails), so jobs of an earlier run cannot be looked for; try later"
    )


def require_no_earlier_jobs(folder: Path, logs: Path) -> None:
    """Refuse to start beside jobs of an earlier run, which may be at the very work that this one would submit.

    Slurm is not asked where nothing was ever submitted (`logs` has its output then): a client without a controller
    waits long for its answer.
    """
    if not (logs / "slurm").is_dir() and not (folder / ".snakemake/slurm_logs").is_dir():
        return
    if jobs := queued_jobs(folder):
        listed = "\n".join(f"  {job.number}  {job.state.lower()} {job.node}  {job.what}" for job in jobs)
        raise UserError(
            f"{len(jobs)} Slurm jobs of an earlier run in this folder are not over:\n{listed}\n"
            f"If that run's main process is still alive, leave them to it. If it was killed, "
            f"type `hald jobs wait` to let the running ones finish (those that have not begun are cancelled; a new run "
            f"submits them again), or `hald jobs stop` to have them save what they have and end. Then start again"
        )


def cancel(jobs: list[QueuedJob], *options: str) -> None:
    """scancel; jobs that have just ended are no error."""
    if jobs:
        subprocess.run(["scancel", *options, *(job.number for job in jobs)], check=False)


def wait_for_jobs(folder: Path, interval: float = 5.0) -> None:
    """Cancel what has not begun, or is put back into the queue meanwhile; wait for what has."""
    said = ""
    while jobs := queued_jobs(folder):
        cancel([job for job in jobs if job.state in WAITING])
        now = ", ".join(f"{job.number} {job.state.lower()} ({job.what})" for job in jobs)
        if now != said:
            print("waiting for", now, flush=True)
            said = now
        time.sleep(interval)


def stop_jobs(folder: Path) -> None:
    """Have every job save and end: the early warning first, as before a time limit."""
    cancel([job for job in queued_jobs(folder) if job.state == "RUNNING"], "--signal=USR1")
    wait_for_jobs(folder)
