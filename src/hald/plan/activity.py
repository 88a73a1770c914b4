"""Which of the missing work is being done just now, as far as files can tell.

A job is at work when it wrote to its log within the last ten minutes and the log does not end with the job's own last
words, or when it keeps a claim on a label view fresh. A job that was killed outright says nothing, so its log counts
until the ten minutes are over; one that is silent for longer than that does not count.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from hald.claim import Claim
from hald.plan.model import Plan
from hald.plan.todo import KINDS, Todo, Work, blocks

FRESH = 600.0  # seconds
TAIL = 16384  # bytes of a log that are looked at: more than a traceback

Job = tuple[str, str, int]  # rule, key, number of the block

_NAME = re.compile(r"_([0-9a-f]{10})(?:-(\d+))?\.log$")
_LINE = re.compile(r"^\d\d:\d\d:\d\d (.*)$", re.MULTILINE)
_LAST_WORDS = re.compile(r"done in |error: |Traceback |.*; what was done is kept")


class Activity:
    """Jobs of unfinished work that are running, and those that said a short while ago that they ended."""

    def __init__(self, todo: Todo, work: Work) -> None:
        self.todo = todo
        wanted = {
            (rule, key, block) for (rule, key), units in work.items() for block in blocks(todo.plan, rule, key, units)
        }
        logs = {job: path for job, path in _logs(todo.plan) if job in wanted and _is_fresh(path)}
        self.ended = frozenset(job for job, path in logs.items() if _has_ended(path))
        self.at_work = (logs.keys() - self.ended) | (wanted & set(_claims(todo, work)))

    def is_running(self, rule: str, key: str, units: Iterable[int]) -> bool:
        """Whether one of these unfinished units is being made: its job's log is alive, or its checkpoint is new."""
        return any(self._is_running(rule, key, unit) for unit in units)

    def _is_running(self, rule: str, key: str, unit: int) -> bool:
        job, saved = _job(self.todo.plan, rule, key, unit), self.todo.checkpoint(rule, key, unit)
        return job in self.at_work or (job not in self.ended and saved is not None and _is_fresh(saved[0]))


def _job(plan: Plan, rule: str, key: str, unit: int) -> Job:
    (block,) = blocks(plan, rule, key, [unit])
    return rule, key, block


def _logs(plan: Plan) -> Iterator[tuple[Job, Path]]:
    """Every log and the job it belongs to; the name has the key and the last unit."""
    for rule in KINDS:
        for folder, _, names in os.walk(Path(plan.results, "logs", rule)):
            for found in filter(None, map(_NAME.search, names)):
                yield _job(plan, rule, found[1], int(found[2] or 0)), Path(folder, found.string)


def _claims(todo: Todo, work: Work) -> Iterator[Job]:
    """Label views that somebody is computing, perhaps on another host."""
    for key in (key for rule, key in work if rule == "relabel"):
        folder = todo.plan.store_dir(key) / "claims"
        for name in todo.present.names(folder):
            if name.endswith(".json") and Claim(folder / name).is_live():
                yield _job(todo.plan, "relabel", key, int(Path(name).stem))


def _is_fresh(path: Path) -> bool:
    try:
        return path.stat().st_mtime > time.time() - FRESH
    except FileNotFoundError:
        return False


def _has_ended(log: Path) -> bool:
    """Whether the last message of a log is a job's last: that it is done, why it failed, or that it was stopped."""
    with log.open("rb") as handle:
        handle.seek(max(0, log.stat().st_size - TAIL))
        messages = _LINE.findall(handle.read().decode(errors="replace"))
    return bool(messages) and _LAST_WORDS.match(messages[-1]) is not None
