"""Claims: one writer per view, unit, seed or teacher, also between runs, users and hosts that share a folder.

A claim is a small file made exclusively, with owner, host, process and Slurm job in it, and kept fresh by a heartbeat.
One whose process is gone (same host), whose heartbeat stopped while Slurm says that its job is over, or whose heartbeat
stopped long ago (another host) is stale: it is said and taken over.
"""

import contextlib
import getpass
import json
import os
import platform
import threading
import time
from pathlib import Path
from typing import Any

from hald.cluster.queue import runs_now
from hald.errors import UserError
from hald.jobs.log import duration, log

HEARTBEAT = 20.0
SILENT = 3 * HEARTBEAT  # after which Slurm is asked; before, it is not believed: it may not show us others' jobs
STALE = 300.0


class Claim:
    """Exclusive right to make one thing while the `with` block runs; `granted` says whether we have it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.granted = False
        self._owner: dict[str, Any] = {}
        self._stop = threading.Event()

    def __enter__(self) -> "Claim":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.granted = self._take() or (self._remove_stale() and self._take())
        if self.granted:
            threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self.granted and self._read() == self._owner:  # else another has taken it over
            self.path.unlink(missing_ok=True)

    def holder(self) -> str:
        """Who has it, for messages."""
        owner = self._read()
        age = duration(max(time.time() - owner.get("since", time.time()), 0))
        user, host = owner.get("user", "somebody"), owner.get("host", "some host")
        inside = f", Slurm job {owner['slurm']}" if owner.get("slurm") else ""
        return f"{user} on {host} (process {owner.get('pid')}{inside}), for {age}"

    def _take(self) -> bool:
        owner: dict[str, Any] = {"user": user_name(), "host": platform.node(), "pid": os.getpid(), "since": time.time()}
        if number := os.environ.get("SLURM_JOB_ID"):
            owner["slurm"] = number
        try:
            taken = self._write(owner)
        except PermissionError as error:
            raise UserError(
                f"no permission to write to {self.path.parents[1]}; ask its owner, or work on a copy"
            ) from error
        self._owner = owner if taken else {}
        return taken

    def _write(self, owner: dict[str, Any]) -> bool:
        """Make the file, unless there is one."""
        try:
            handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        with os.fdopen(handle, "w") as file:
            json.dump(owner, file)
        return True

    def _read(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self.path.read_text()))
        except (OSError, ValueError):  # just released, or just being written
            return {}

    def is_live(self) -> bool:
        """Whether there is a claim whose owner still works (same host), or whose heartbeat is fresh (another)."""
        try:
            silent = time.time() - self.path.stat().st_mtime
        except FileNotFoundError:
            return False
        owner = self._read()
        if owner.get("host") == platform.node():
            return silent < STALE and alive(int(owner.get("pid", 0)))
        if silent < SILENT:
            return True
        runs = _job_runs(owner.get("slurm"))
        return silent < STALE if runs is None else runs  # a suspended job beats no more, and will go on

    def _remove_stale(self) -> bool:
        """Remove a claim whose owner is gone; False while its owner, or a new one, is at work."""
        stale = self._read()
        if not self.path.exists():
            return True
        if self.is_live():
            return False
        log.warning("taking over %s: its owner, %s, is gone", self.path.name, self.holder())
        removed = Claim(self.path.with_name(f"{self.path.name}.stale-{os.getpid()}"))
        try:  # rename first: of two that take over, one succeeds
            self.path.rename(removed.path)
        except FileNotFoundError:
            return True
        mistaken = removed._read() != stale  # another took over before us, and this is its new claim
        if mistaken:
            self._write(removed._read())
        removed.path.unlink()
        return not mistaken

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT):
            with contextlib.suppress(OSError):  # a network file system that fails for a moment
                if self._read() == self._owner:
                    os.utime(self.path)


def _job_runs(number: str | None) -> bool | None:
    """Whether the Slurm job of a silent owner on another node is still there; None if that cannot be known.

    Our own number means that Slurm started this job again after its node failed.
    """
    if number is None:
        return None
    return False if number == os.environ.get("SLURM_JOB_ID") else runs_now(number)


def alive(pid: int) -> bool:
    """Whether a process of this host runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def user_name() -> str:
    """Who we are, for records."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
