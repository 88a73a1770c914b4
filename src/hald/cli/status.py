"""`hald status`: the tables of an experiment with what is done, running and missing, once or again and again."""

import argparse
import shutil
import sys
import time
from typing import Any

from hald.cli.options import add_config
from hald.config.read import config_from, experiment_file, experiment_names, read_yaml
from hald.errors import UserError
from hald.files import size
from hald.jobs.log import duration
from hald.plan.model import Plan
from hald.progress.status import Line, Status, status

INTERVAL = 10.0
CLEAR = "\x1b[2J\x1b[H"
BAR = 16  # characters, where the terminal has room for them

DESCRIPTION = """\
Each table of the config (or of one experiment) with its cells, its soft labels and the time that is left.

  done       all seeds of the cell have their records
  running    a seed without record is being trained: a living job claims it
  missing    the others, also those that were begun and stopped: they go on from their checkpoint
  labels     bytes of the label views that the table needs: measured of those that are there, ~ estimated of the rest
  time left  of all that is missing for the table, teachers, images and labels included, one job after the other, by
             the timings of finished work on its fastest device; unknown where there is none. Preparing a dataset,
             fetching weights and writing tables are not timed

The last line counts labels and work that tables share once. What is at work is known from the claims that jobs keep on
what they are making."""


def add_parser(commands: Any) -> None:
    """Add `hald status` to the command line."""
    parser = commands.add_parser(
        "status",
        help="show how far each table is: cells done, running, missing, label bytes, time left",
        description=DESCRIPTION,
        epilog="examples:\n  hald status\n  hald status cifar100\n  hald status paper --watch\n"
        "  hald status --watch 60 --config stores=/shared/labels",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "experiment", nargs="?", help="its name, as in `experiments` of the config; default: all that the config names"
    )
    parser.add_argument(
        "--watch",
        nargs="?",
        type=_seconds,
        const=INTERVAL,
        metavar="SECONDS",
        help=f"show it again every SECONDS (default: {INTERVAL:g}) until all is done, or Ctrl-C",
    )
    add_config(parser)
    parser.set_defaults(run=_run)


def _seconds(text: str) -> float:
    """Time between two looks."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"found '{text}', expected seconds; an experiment goes before it: hald status {text} --watch"
        ) from None
    if not 0.1 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"found '{text}', expected seconds between 0.1 and 86400")
    return value


def _run(options: argparse.Namespace) -> int:
    from hald.pipeline import make_plan

    try:
        raw = config_from(options.config)
        plan = make_plan(raw if options.experiment is None else only(options.experiment, raw))
        if options.watch is None:
            print(text(status(plan), _columns()))
        else:
            watch(plan, options.watch)
    except KeyboardInterrupt:  # the way to end watching
        print()
    return 0


def only(name: str, raw: dict[str, Any]) -> dict[str, Any]:
    """The config for one experiment, whatever others it names."""
    if not experiment_file(name).is_file():
        raise UserError(f"there is no experiment '{name}'; there are {', '.join(experiment_names()) or 'none'}")
    parts = {name, *read_yaml(experiment_file(name)).get("includes", [])}
    override = {key: value for key, value in dict(raw.get("override") or {}).items() if key in parts}
    return {**raw, "experiments": [name], "override": override}


def watch(plan: Plan, seconds: float) -> None:
    """Print the status every so often until everything is done; on a terminal in one place."""
    while True:
        now = status(plan)
        stamp = time.strftime("%H:%M:%S")
        end = "all done" if now.total.finished else f"every {seconds:g} s, Ctrl-C ends"
        sys.stdout.write(f"{CLEAR if sys.stdout.isatty() else ''}{text(now, _columns())}\n{stamp}, {end}\n")
        sys.stdout.flush()
        if now.total.finished:
            return
        time.sleep(seconds)


def _columns() -> int:
    return shutil.get_terminal_size((100, 24)).columns


def text(now: Status, columns: int) -> str:
    """The status for people, `columns` wide if that can be done."""
    rows = [_fields(line) for line in [*now.tables, now.total]]
    head = ("table", "done", "running", "missing", "", "labels", "time left")
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    bar = max(0, min(BAR, columns - sum(widths) - 2 * len(widths)))
    shares = [line.cells.trained / max(line.cells.trainings, 1) for line in [*now.tables, now.total]]
    out = [_row(head, widths, " " * bar)]
    out += [_row(row, widths, _bar(share, bar)) for row, share in zip(rows, shares, strict=True)]
    out.insert(-1, "-" * len(out[0]))
    return "\n".join(out + _notes(now))


def _fields(line: Line) -> tuple[str, ...]:
    cells = line.cells
    share = f"{100 * cells.trained // max(cells.trainings, 1)} %"
    return line.name, f"{cells.done}", f"{cells.running}", f"{cells.missing}", share, _labels(line), _left(line)


def _labels(line: Line) -> str:
    to_come = f"~{size(line.bytes_to_come)}" if line.bytes_to_come else ""
    there = size(line.label_bytes) if line.label_bytes or not to_come else ""
    return " + ".join(filter(None, [there, to_come]))


def _left(line: Line) -> str:
    if line.finished:
        return "-"
    if line.cells.trained == line.cells.trainings:
        return "to write"
    return "unknown" if line.seconds is None else duration(line.seconds)


def _row(fields: tuple[str, ...], widths: list[int], bar: str) -> str:
    name, *numbers = (f"{field:{'<' if i == 0 else '>'}{widths[i]}}" for i, field in enumerate(fields))
    return "  ".join([name, *numbers[:3], *([bar] if bar else []), *numbers[3:]])


def _bar(share: float, width: int) -> str:
    full, empty = ("█", "░") if (sys.stdout.encoding or "").lower().startswith("utf") else ("#", ".")
    return (full * int(share * width)).ljust(width, empty)


def _notes(now: Status) -> list[str]:
    """What a column cannot say."""
    jobs = ", ".join(f"{rule} {count}" for rule, count in now.at_work.items())
    notes = [f"at work: {jobs}"] if jobs else []
    if now.stopped:
        notes.append(f"stopped half-way, to go on from a checkpoint: {now.stopped}")
    if now.untimed:
        more = f" and {len(now.untimed) - 3} more" if len(now.untimed) > 3 else ""
        notes.append(f"no timing yet: {', '.join(now.untimed[:3])}{more}")
    return notes
