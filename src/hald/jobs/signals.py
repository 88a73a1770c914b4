"""Signals that ask a job to stop: noted when they come, obeyed where it can save what it has."""

import signal
import time
from typing import ClassVar

from hald.jobs.log import log

SAVE_SECONDS = 600.0  # longest time between two checkpoints
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class Interrupted(BaseException):
    """A signal asked the job to stop: it saved what it had."""


class StopRequest:
    """Turns Ctrl-C, SIGTERM and SIGUSR1 (sent before a time limit) into a flag that loops look at between steps.

    The flag belongs to the process: a signal that comes while a job still loads its data is seen by the loop later.
    """

    _noted: ClassVar[int | None] = None
    _active: ClassVar[int] = 0

    def __init__(self) -> None:
        self._saved = time.monotonic()

    @property
    def signal(self) -> int | None:
        """The signal that came, if one did."""
        return StopRequest._noted

    def __enter__(self) -> "StopRequest":
        StopRequest._active += 1
        self._previous = {number: signal.signal(number, self._note) for number in STOP_SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        StopRequest._active -= 1
        if not StopRequest._active:
            StopRequest._noted = None

    @staticmethod
    def _note(number: int, _frame: object) -> None:
        StopRequest._noted = number

    def check(self) -> None:
        """Raise Interrupted if a signal came."""
        if self.signal is not None:
            raise Interrupted(f"stopped by {signal.Signals(self.signal).name}")

    def save_now(self, epoch: int, every: int) -> bool:
        """Whether to save after `epoch` (or batch): a signal came, `every` of them or ten minutes have passed."""
        now = time.monotonic()
        due = bool(self.signal) or epoch % every == 0 or now - self._saved > SAVE_SECONDS
        if self.signal:
            log.info("%s: saving after %d", signal.Signals(self.signal).name, epoch)
        if due:
            self._saved = now
        return due
