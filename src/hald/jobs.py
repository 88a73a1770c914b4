"""What every job does around its work: log, signals, claims, timing record."""

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
from typing import Any, ClassVar

from hald.claim import Claim
from hald.code_digests import code_digests
from hald.errors import UserError
from hald.files import explained, write_json
from hald.progress import Progress, duration, log
from hald.scratch import staged

__all__ = ["Interrupted", "Progress", "StopRequest", "duration", "exclusive", "job", "log", "write_timing"]

REPEAT_SECONDS = 600.0
SAVE_SECONDS = 600.0  # longest time between two checkpoints
WAIT = 2.0  # seconds between looks at what another job has claimed


class Interrupted(BaseException):
    """A signal asked the job to stop: it saved what it had."""


STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


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


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Do the block's work alone: hold the claim `path`, after waiting for whoever has it."""
    with StopRequest() as stop:
        said = False
        while True:
            stop.check()
            with Claim(path) as claim:
                if claim.granted:
                    yield
                    return
            if not said:
                log.info("%s is being worked on by %s; waiting", path.stem, claim.holder())
                said = True
            time.sleep(WAIT)


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
            log.info("at work on %s", place())
            with StopRequest() as stop, _alone(work) as alone, explained("this job could not write its results"):
                if alone and Path(snakemake.output[0]).exists():  # Snakemake removed it when this job began
                    log.info("another job has made it meanwhile")
                    sys.exit(0)
                yield staged(work)
                stop_noted = stop.signal
        except UserError as error:
            log.error("error: %s", error)
            sys.exit(1)
        except Interrupted as error:
            log.error("%s; what was done is kept, the next attempt goes on from there", error)
            sys.exit(1)
        except Exception:
            log.error("%s", traceback.format_exc())
            sys.exit(1)
        if stop_noted is not None:
            log.info("%s came when all was done", signal.Signals(stop_noted).name)
        log.info("done in %s", duration(time.monotonic() - start))


def place() -> str:
    """Where this job runs, for its log: host, and in Slurm the job's number and node."""
    number = os.environ.get("SLURM_JOB_ID")
    node = os.environ.get("SLURMD_NODENAME", "")
    return platform.node() + (f", Slurm job {number} {node}".rstrip() if number else "")


@contextlib.contextmanager
def _alone(work: dict[str, Any]) -> Iterator[bool]:
    """Claim a stage that is one piece of work (True). Stages of many units claim each of them when they come to it."""
    if "partial" in work and not work.keys() & {"units", "views", "seeds"}:
        with exclusive(Path(f"{work['partial']}.claim")):
            yield True
    else:
        yield False


def _require_code(work: dict[str, Any]) -> None:
    """Refuse to put results of edited code under the key of the code that was planned."""
    if "code" in work and code_digests()[work["stage"]] != work["code"]:
        raise UserError(
            f"the source code of stage {work['stage']} changed since this run was planned, so its results would not be "
            f"what their key says. Start snakemake again: it plans with the new code"
        )


class Unrepeated(logging.Filter):
    """Drops a line that was said less than ten minutes ago: what waits for another job looks every few seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is new, or old enough to be said again."""
        text = record.getMessage()
        if record.created - self.said.get(text, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return False
        self.said[text] = record.created
        return True


def setup_logging(stream: Any) -> None:
    """One line per message, with the time of day."""
    handler = logging.StreamHandler(stream)
    handler.addFilter(Unrepeated())
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)


def write_timing(path: Path, seconds: float, device: str, kind: str, work: float) -> None:
    """Timing record beside a result, never part of it: `work` units of `kind` took so long. `hald plan` reads it."""
    host = platform.node()
    write_json(path, {"seconds": round(seconds, 3), "host": host, "device": device, "kind": kind, "work": work})
