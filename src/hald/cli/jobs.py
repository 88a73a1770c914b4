"""`hald jobs`: what an earlier, killed run left in Slurm's queue."""

import argparse
from pathlib import Path
from typing import Any

from hald.cluster.queue import queued_jobs, stop_jobs, wait_for_jobs
from hald.errors import UserError


def add_parser(commands: Any) -> None:
    """Add `hald jobs` to the command line."""
    jobs = commands.add_parser(
        "jobs",
        help="Slurm jobs that an earlier, killed run left behind: list them, wait for them, or have them save and end",
        description="Jobs of this folder in Slurm's queue, which go on when the main Snakemake process was killed:\n\n"
        "  ls     list them (also without a word)\n"
        "  wait   let the running ones finish, cancel those that have not begun\n"
        "  stop   have them save what they have, and end",
        epilog="examples:\n  hald jobs\n  hald jobs wait && snakemake --profile slurm all",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    jobs.add_argument("action", choices=["ls", "wait", "stop"], nargs="?", default="ls")
    jobs.set_defaults(run=_jobs)


def _jobs(options: argparse.Namespace) -> int:
    locks = Path(".snakemake/locks")
    if options.action != "ls" and locks.is_dir() and any(locks.iterdir()):
        raise UserError(
            "a Snakemake run holds this folder, and these are its jobs. If it was killed, first type snakemake --unlock"
        )
    if not Path(".snakemake").is_dir():
        raise UserError("nothing was ever submitted from this folder; run from the project's root folder")
    if options.action != "ls":
        (wait_for_jobs if options.action == "wait" else stop_jobs)(Path.cwd())
    jobs = queued_jobs(Path.cwd())
    for job in jobs:
        print(f"{job.number:>9}  {job.state.lower():<10} {job.node:<10} {job.what}")
    if not jobs:
        print("no jobs of this folder are in Slurm's queue")
    return 0
