"""`hald runs`: the trainings of the config with their state, accuracy and time."""

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hald.cli.options import add_config
from hald.files import read_json
from hald.jobs.log import duration


@dataclass(frozen=True)
class Line:
    """One training: its name, seed, state, top-1 accuracy (%) and seconds (None: not known)."""

    run: str
    seed: int
    state: str
    top1: float | None
    seconds: float | None


def add_parser(commands: Any) -> None:
    """Add `hald runs` to the command line."""
    runs = commands.add_parser("runs", help="list trainings: done, begun or missing, with accuracy and time")
    actions = runs.add_subparsers(title="actions", required=True, metavar="ACTION")
    ls = actions.add_parser(
        "ls",
        help="list the trainings of the config",
        description="Every training that the config's tables ask for: done (with its accuracy and time), begun (with "
        "the epoch of its checkpoint) or missing. --all adds finished trainings that the config no longer asks for.",
        epilog="examples:\n  hald runs ls\n  hald runs ls --means\n  hald runs ls --state missing --config "
        "'experiments=[cifar100]'",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_config(ls)
    ls.add_argument("--state", choices=["done", "begun", "missing"], help="only these")
    ls.add_argument("--means", action="store_true", help="one line per setting: mean and deviation over its seeds")
    ls.add_argument("--all", action="store_true", help="also trainings that the config does not ask for")
    ls.set_defaults(run=_ls)


def _ls(options: argparse.Namespace) -> int:
    from hald.config.read import config_from
    from hald.pipeline import make_plan

    plan = make_plan(config_from(options.config))
    lines = list(planned(plan))
    if options.all:
        known = {line.run for line in lines}
        lines += [line for line in finished(Path(plan.results, "runs")) if line.run not in known]
    shown = [line for line in lines if not options.state or line.state.startswith(options.state)]
    print("\n".join(_means(shown) if options.means else _listing(shown)))
    done = sum(line.state == "done" for line in lines)
    print(f"{len(lines)} trainings: {done} done, {len(lines) - done} to do")
    return 0


def planned(plan: Any) -> Iterator[Line]:
    """The trainings of a plan."""
    for key, spec in plan.runs.items():
        for seed in range(plan.needed["evaluate", key]):
            record = plan.file("evaluate", key, seed)
            if record.exists():
                yield _done(record, plan.slugs[key], seed)
                continue
            note = plan.partial(key) / f"seed-{seed}" / "checkpoint.json"
            state = f"begun, epoch {read_json(note)['epoch']}/{spec.epochs}" if note.exists() else "missing"
            yield Line(plan.slugs[key], seed, state, None, None)


def finished(folder: Path) -> Iterator[Line]:
    """All finished trainings below a folder of records."""
    for record in sorted(folder.glob("*/*/seed-*.json")):
        yield _done(record, str(record.parent.relative_to(folder)), int(record.stem.removeprefix("seed-")))


def _done(record: Path, run: str, seed: int) -> Line:
    timing = record.parent / "timings" / record.name
    seconds = float(read_json(timing)["seconds"]) if timing.exists() else None
    return Line(run, seed, "done", float(read_json(record)["top1"]), seconds)


def _listing(lines: list[Line]) -> list[str]:
    width = max((len(line.run) for line in lines), default=3)
    head = f"{'run':<{width}}  seed  top-1    time  state"
    return [head, *(_row(line, width) for line in lines)]


def _row(line: Line, width: int) -> str:
    top1 = "-" if line.top1 is None else f"{line.top1:.2f}"
    time = "-" if line.seconds is None else duration(line.seconds)
    return f"{line.run:<{width}}  {line.seed:>4}  {top1:>5}  {time:>6}  {line.state}"


def _means(lines: list[Line]) -> list[str]:
    runs: dict[str, list[Line]] = {}
    for line in lines:
        runs.setdefault(line.run, []).append(line)
    width = max((len(run) for run in runs), default=3)
    return [f"{'run':<{width}}  done  top-1", *(_mean_row(run, part, width) for run, part in runs.items())]


def _mean_row(run: str, lines: list[Line], width: int) -> str:
    values = [line.top1 for line in lines if line.top1 is not None]
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    mean = f"{statistics.fmean(values):.2f}{spread}" if values else "-"
    return f"{run:<{width}}  {len(values)}/{len(lines):<2}  {mean}"
