"""What a job says while it works: log lines, and progress with rate and time left."""

import logging
import time
from typing import TextIO

log = logging.getLogger("hald")
REPEAT_SECONDS = 600.0


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


def setup_logging(stream: TextIO) -> None:
    """One line per message, with the time of day."""
    handler = logging.StreamHandler(stream)
    handler.addFilter(Unrepeated())
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
