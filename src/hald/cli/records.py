"""Results that outlive their folder: one line of JSON for each student, analysis, teacher and kind of work.

A line has its `kind`, the `places` where experiments show it, a student's `seed`, the day and machine it was made on,
and the `record` as the pipeline wrote it. It is found by place and seed, whatever today's keys are.
"""

import argparse
import json
import os
import platform
import re
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hald.cli.options import add_config
from hald.config.read import config_from, load_config
from hald.errors import UserError
from hald.files import read_json, write_json, write_text
from hald.keys import canonical
from hald.pipeline import make_plan
from hald.plain import to_dict
from hald.plan.model import Plan
from hald.plan.stages import STAGES

Line = dict[str, Any]
CELL = ("dataset", "images", "ipc", "slc", "student", "evaluation")  # what names a student in an experiment


def add_parser(commands: Any) -> None:
    """Add `hald records` to the command line."""
    records = commands.add_parser(
        "records",
        help="write the records of the config's experiments into one file, or put them back from there",
        description="Records of students, analyses and teachers, and hours of work, as JSON Lines:\n\n"
        "  out    write what is finished into FILE, with the day and this machine: call it where it was made. What\n"
        "         FILE has of other experiments stays\n"
        "  in     put FILE's records back into the results, where they are missing, to go on in a fresh clone or on\n"
        "         another machine. Only what today's settings and code would make again is taken",
        epilog="examples:\n"
        "  hald records out studies/cpu/records.jsonl --config 'experiments=[studies/cpu/experiments/base]'\n"
        "  hald records in studies/cpu/records.jsonl --config 'experiments=[studies/cpu/experiments/base]'",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    records.add_argument("action", choices=["out", "in"])
    records.add_argument("file", type=Path, metavar="FILE")
    add_config(records)
    records.set_defaults(run=_records)


def _records(options: argparse.Namespace) -> int:
    plans = plans_of(config_from(options.config))
    print((records_out if options.action == "out" else records_in)(plans, options.file))
    return 0


class Asked(NamedTuple):
    """A result that an experiment shows, and the file that the pipeline keeps it in."""

    kind: str  # student, analysis or teacher
    place: dict[str, Any]
    seed: int | None
    key: str
    file: Path


def plans_of(raw: Mapping[str, Any], root: Path = Path()) -> dict[str, Plan]:
    """A plan for each experiment of a config."""
    config, experiments = load_config(dict(raw), root)
    changes = {name: {name: config.override[name]} if name in config.override else {} for name in experiments}
    return {name: make_plan({**raw, "experiments": [name], "override": changes[name]}, root) for name in experiments}


def asked(experiment: str, plan: Plan) -> dict[str, Asked]:
    """All results that an experiment shows, by the names of their lines."""
    found = []
    for cell in (cell for table in plan.tables.values() if not table.of_analyses for cell in table.cells):
        place = {name: cell.place[name] for name in CELL}
        seeds = range(plan.needed["evaluate", cell.run])
        found += [Asked("student", place, seed, cell.run, plan.file("evaluate", cell.run, seed)) for seed in seeds]
    for key in plan.analyses:
        found.append(Asked("analysis", {"analysis": plan.names[key]}, None, key, plan.file("analysis", key)))
    for key in plan.teachers:
        found.append(Asked("teacher", {"teacher": plan.names[key]}, None, key, plan.file("squeeze", key)))
    placed = (one._replace(place={"experiment": experiment, **one.place}) for one in found)
    return {canonical([one.kind, one.place, one.seed]): one for one in placed}


def by_name(lines: list[Line]) -> dict[str, Line]:
    """Lines by each of the names that they are found by: kind, place and seed."""
    return {canonical([line["kind"], place, line.get("seed")]): line for line in lines for place in line["places"]}


def read_lines(path: Path) -> list[Line]:
    """The lines of a file of results."""
    lines = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            lines.append(json.loads(text))
            by_name(lines[-1:])
            lines[-1]["record"].keys()
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{path}, line {number} is no result; `hald records out` makes a file of its own") from None
    return lines


def records_out(plans: Mapping[str, Plan], path: Path) -> str:
    """Write the finished results of experiments into a file: what was done.

    What the file has of other experiments stays, and so does what is not among these results (any more).
    """
    before = read_lines(path) if path.exists() else []
    fresh: dict[Path, Line] = {}
    for experiment, plan in plans.items():
        for one in asked(experiment, plan).values():
            if one.file.exists():
                fresh.setdefault(one.file, _line(one, plan))["places"].append(one.place)
    if not any(line["kind"] == "student" for line in fresh.values()):
        places = ", ".join(dict.fromkeys(plan.results for plan in plans.values()))
        raise UserError(f"no training of this config is finished in {places}: there is nothing to write out")
    work = [line for experiment, plan in plans.items() for line in _work(experiment, plan, by_name(before))]
    lines = _merged(before, [*fresh.values(), *work])
    for line in lines:
        line["places"].sort(key=canonical)
    lines.sort(key=lambda line: (line["kind"], canonical(line["places"]), line.get("seed", 0)))
    texts = (json.dumps(line, sort_keys=True, ensure_ascii=False, separators=(",", ":")) for line in lines)
    write_text(path, "".join(f"{text}\n" for text in texts))
    return f"{path}: {len(fresh)} results written; {_there(plans)}"


def records_in(plans: Mapping[str, Plan], path: Path) -> str:
    """Put students' records and analyses from a file into the results, where they are missing: what was done.

    Keys carry settings and code, so only what would come out again is taken.
    """
    known, put_back, other = by_name(read_lines(path)), set(), set()
    for name, one in (item for experiment, plan in plans.items() for item in asked(experiment, plan).items()):
        line = known.get(name)
        if line is None or one.kind == "teacher" or one.file.exists():
            continue
        if line["record"].get("key") != one.key:
            other.add(one.file)
            continue
        if "timing" in line:
            write_json(_timing(one.file), line["timing"])
        write_json(one.file, line["record"] | {"made": {name: line[name] for name in ("day", "machine")}})
        put_back.add(one.file)
    left = f"; {len(other)} are of other settings or other code and stay out" if other else ""
    return f"{path}: {len(put_back)} results put back{left}; {_there(plans)}"


def _timing(record: Path) -> Path:
    """How long a result took: of students a file for each seed, of analyses the only one."""
    return record.parent / "timings" / record.name


def _there(plans: Mapping[str, Plan]) -> str:
    files = {one.file for name, plan in plans.items() for one in asked(name, plan).values() if one.kind == "student"}
    return f"{sum(file.exists() for file in files)} of {len(files)} trainings are there"


def _line(one: Asked, plan: Plan) -> Line:
    """A result as a line that has no place yet. What was put back says itself where it was made."""
    record, timing = read_json(one.file), _timing(one.file)
    made = {"day": time.strftime("%Y-%m-%d", time.localtime(one.file.stat().st_mtime)), "machine": machine()}
    line = {"kind": one.kind, "places": [], **record.pop("made", made), "record": record}
    line |= {"seed": one.seed} if one.kind == "student" else {}
    line |= {"timing": read_json(timing)} if timing.exists() else {}
    if one.kind == "teacher":
        spec = to_dict(plan.teachers[one.key])
        line |= {"name": plan.slugs[one.key], "floor": plan.floors[one.key], "settings": spec}
    return line


def _merged(before: list[Line], fresh: list[Line]) -> list[Line]:
    """New lines, and old ones where no new one took their place. A record that was there keeps its origin."""
    claimed, kept = by_name(fresh), []
    same = {_content(line): line for line in fresh if line["kind"] != "work"}
    for old in before:
        free = [place for name, place in zip(by_name([old]), old["places"], strict=True) if name not in claimed]
        if line := same.get(_content(old)):
            line.update({name: old[name] for name in ("day", "machine", "timing") if name in old})
            line["places"] += free
        elif free:
            kept.append(old | {"places": free})
    return kept + fresh


def _content(line: Line) -> str:
    return json.dumps([line["kind"], line.get("seed"), line["record"]], sort_keys=True)


def _work(experiment: str, plan: Plan, known: Mapping[str, Line]) -> list[Line]:
    """Hours of every kind of work behind an experiment. Work that was spared this time counts as it did before."""
    hours: Counter[str] = Counter()
    for stage, key in ((name, key) for name, stage in STAGES.items() if stage.timed for key in plan.specs[name]):
        for path in plan.folder(stage, key).glob("timings/*.json"):
            timing = read_json(path)
            took = timing["seconds"] / 3600
            if stage == "evaluate":  # of its last leg, where a training was interrupted: in proportion
                took *= plan.runs[key].effort[1] / timing["work"]
            hours[re.sub(r" [0-9a-f]{10}$", "", timing["kind"])] += took  # without a key at its end
    lines = [
        {"kind": "work", "places": [{"experiment": experiment, "work": kind}], "record": {"hours": round(value, 3)}}
        for kind, value in hours.items()
    ]
    for name, line in by_name(lines).items():
        line["record"]["hours"] = max(line["record"]["hours"], known.get(name, line)["record"]["hours"])
    return lines


def machine() -> str:
    """This machine in a few words."""
    info = Path("/proc/cpuinfo")
    cpu = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    return f"{os.cpu_count()} cores, {cpu[1] if cpu else platform.machine()}"
