"""What every job does around its work: log, progress with time left, signals, timing record."""

import contextlib
import logging
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
from hald.files import write_json
from hald.provenance import code_digests

log = logging.getLogger("hald")


class Progress:
    """Lines with rate and time left, at most one every few seconds, and one at the end."""

    def __init__(self, total: int, unit: str, interval: float = 5.0, done: int = 0) -> None:
        self.total, self.unit, self.interval = total, unit, interval
        self.first = self.done = done
        self.start = self.last = time.monotonic()

    def step(self, note: str = "") -> None:
        """Report that one more unit is done."""
        self.done += 1
        now = time.monotonic()
        if now - self.last < self.interval and self.done < self.total:
            return
        self.last = now
        rate = (self.done - self.first) / max(now - self.start, 1e-9)
        left = (self.total - self.done) / rate if rate else float("inf")
        log.info(
            "%s %d/%d  %.3g/s  %s left%s", self.unit, self.done, self.total, rate, duration(left), note and f"  {note}"
        )


def duration(seconds: float) -> str:
    """`1h 02m`, `3m 20s` or `12s`."""
    if seconds == float("inf"):
        return "unknown time"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"


class Interrupted(BaseException):
    """A signal asked the job to stop: it saved what it had."""


STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class StopRequest:
    """Turns Ctrl-C, SIGTERM and SIGUSR1 (sent before a time limit) into a flag that loops look at between steps."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __enter__(self) -> "StopRequest":
        self._previous = {number: signal.signal(number, self._note) for number in STOP_SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: object) -> None:
        self.signal = number

    def check(self) -> None:
        """Raise Interrupted if a signal came."""
        if self.signal is not None:
            raise Interrupted(f"stopped by {signal.Signals(self.signal).name}")


@contextlib.contextmanager
def job(snakemake: Any) -> Iterator[dict[str, Any]]:
    """Run a rule's script with its parameters; everything that is printed or raised ends in the rule's log."""
    with Path(snakemake.log[0]).open("a", buffering=1, encoding="utf-8") as stream:
        os.dup2(stream.fileno(), 2)
        os.dup2(stream.fileno(), 1)
        setup_logging(sys.stderr)
        start = time.monotonic()
        try:
            work = dict(snakemake.params.get("work", {}))
            _require_code(work)
            yield work
        except UserError as error:
            log.error("error: %s", error)
            sys.exit(1)
        except Interrupted as error:
            log.error("%s; what was done is kept, the next attempt goes on from there", error)
            sys.exit(1)
        except Exception:
            log.error("%s", traceback.format_exc())
            sys.exit(1)
        log.info("done in %s", duration(time.monotonic() - start))


def _require_code(work: dict[str, Any]) -> None:
    """Refuse to put results of edited code under the key of the code that was planned."""
    if "code" in work and code_digests()[work["stage"]] != work["code"]:
        raise UserError(
            f"the source code of stage {work['stage']} changed since this run was planned, so its results would not be "
            f"what their key says. Start snakemake again: it plans with the new code"
        )


def setup_logging(stream: Any) -> None:
    """One line per message, with the time of day."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)


def write_timing(path: Path, seconds: float, device: str, kind: str, work: float) -> None:
    """Timing record beside a result, never part of it: `work` units of `kind` took so long. `hald plan` reads it."""
    host = platform.node()
    write_json(path, {"seconds": round(seconds, 3), "host": host, "device": device, "kind": kind, "work": work})
