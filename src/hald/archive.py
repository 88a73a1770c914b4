"""Results that outlive their folder: tables, figures and compact run records in one file, and documents made of them.

A document is a template whose `{{...}}` are filled from the archive alone: it can be made again anywhere, and no number
in it is typed by hand.

    {{table ID}}  {{figure ID}}                 a table with what it was made by; a figure, written beside the document
    {{cell ID | ROW | COLUMN}}                  one cell: mean and deviation
    {{gain ID | ROW | COLUMN | ROW | COLUMN}}   the mean of the first cell minus that of the second
    {{teachers}}  {{costs}}                     accuracy of the teachers; minutes of every kind of work
"""

import inspect
import json
import os
import platform
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hald.errors import UserError
from hald.figures import Material, write_figure
from hald.files import read_json, write_json, write_text
from hald.plan.model import Plan
from hald.specs.base import from_dict, to_dict
from hald.specs.figure import FigureSpec
from hald.specs.table import TableSpec
from hald.tables import DASH, Shown, cell_rows, grid, ours_text, to_markdown

Archive = dict[str, Any]
SHARED = ("code", "versions", "label_bytes", "slc_effective", "spec")  # what all seeds of a run have in common
LINE: dict[str, Any] = {"sort_keys": True, "ensure_ascii": False, "separators": (",", ":")}
FORMAT = 1
PARTS = ("tables", "figures", "runs", "analyses", "teachers", "costs")


def collect(plan: Plan, path: Path, command: str) -> str:
    """Put the tables and figures of a plan into an archive, beside those of other plans that are there: what was done.

    A seed that was archived before and is not in the results any more stays.
    """
    empty: Archive = {"format": FORMAT, **{part: {} for part in PARTS}}
    archive = read_archive(path) if path.exists() else empty
    records = {key: [s for s in range(plan.seeds[key]) if plan.record(key, s).exists()] for key in plan.runs}
    if not any(records.values()):
        raise UserError(f"no training of this config is finished in {plan.results}: there is nothing to archive")
    newest = max(plan.record(key, seed).stat().st_mtime for key, seeds in records.items() for seed in seeds)
    made = {"command": command, "date": time.strftime("%Y-%m-%d", time.localtime(newest)), "machine": machine()}
    replaced = [name for name in plan.tables if name in archive["tables"]]
    for name, table in plan.tables.items():
        archive["tables"][name] = {"spec": to_dict(table), "made": made}
    for name, figure in plan.figures.items():
        archive["figures"][name] = to_dict(figure)
    for key, seeds in records.items():
        known = archive["runs"].get(key, {"seeds": {}})["seeds"]
        if seeds:
            first = read_json(plan.record(key, seeds[0]))
            facts = {name: first[name] for name in SHARED}
            found = {str(seed): compact(plan, key, seed) for seed in seeds}
            archive["runs"][key] = {"name": plan.slugs[key], **facts, "seeds": known | found}
    for key in plan.analyses:
        if plan.analysis_file(key).exists():
            archive["analyses"][key] = read_json(plan.analysis_file(key))
    for key, teacher in plan.teachers.items():
        found_teacher = plan.teacher_dir(key) / "teacher.json"
        if found_teacher.exists():
            facts = {name: read_json(found_teacher)[name] for name in ("arch", "top1", "top5")}
            archive["teachers"][plan.slugs[key]] = facts | {"floor": plan.floors[key], "spec": to_dict(teacher)}
    archive["costs"][command] = costs(plan)
    _drop_unused(archive)
    write_text(path, _text(archive))
    done, wanted = sum(map(len, records.values())), sum(plan.seeds.values())
    again = f", {len(replaced)} of them in place of older ones" if replaced else ""
    return f"{path}: {len(plan.tables)} tables{again}; {done} of {wanted} trainings are there"


def read_archive(path: Path) -> Archive:
    """An archive that `collect` wrote."""
    archive: Archive = read_json(path)
    if not isinstance(archive, dict) or archive.get("format") != FORMAT or not all(part in archive for part in PARTS):
        raise UserError(f"{path} is not an archive of results; `hald archive` makes one in a file of its own")
    return archive


def _text(archive: Archive) -> str:
    """JSON with one entry per line, so that a run that changes is a line that changes."""
    parts = []
    for part in PARTS:
        lines = [f"{json.dumps(key)}:{json.dumps(value, **LINE)}" for key, value in sorted(archive[part].items())]
        parts.append(f'"{part}":{{\n' + ",\n".join(lines) + "}")
    return f'{{"format":{archive["format"]},\n' + ",\n".join(parts) + "}\n"


def compact(plan: Plan, key: str, seed: int) -> dict[str, Any]:
    """One record without what all seeds share; its learning curve as columns."""
    record = read_json(plan.record(key, seed))
    timing = plan.record(key, seed).with_suffix(".timing.json")
    curve = {name: [point[name] for point in record["curve"]] for name in ("epoch", "stage", "loss", "top1")}
    kept = {name: record[name] for name in ("top1", "top5", "best", "stage_starts")}
    return kept | {"curve": curve, "seconds": read_json(timing)["seconds"] if timing.exists() else None}


def costs(plan: Plan) -> dict[str, float]:
    """Hours of every kind of work behind a plan, as its jobs recorded them."""
    files = [
        *(path for key in plan.runs for path in plan.run_dir(key).glob("*.timing.json")),
        *(path for key in plan.labels for path in (plan.store_dir(key) / "timings").glob("*.json")),
        *(path for key in (*plan.rankings, *plan.units) for path in (plan.units_dir(key) / "timings").glob("*.json")),
        *(plan.teacher_dir(key) / "timing.json" for key in plan.teachers),
        *(plan.statistics_dir(key) / "timing.json" for key in plan.statistics),
        *(plan.images_dir(key) / "timing.json" for key in plan.images),
        *(plan.analysis_file(key).with_suffix(".timing.json") for key in plan.analyses),
    ]
    hours: Counter[str] = Counter()
    for record in (read_json(path) for path in files if path.exists()):
        hours[record["kind"]] += record["seconds"] / 3600
    return {kind: round(value, 3) for kind, value in sorted(hours.items())}


def machine() -> str:
    """This machine in a few words."""
    info = Path("/proc/cpuinfo")
    cpu = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    return f"{os.cpu_count()} cores, {cpu[1] if cpu else platform.machine()}"


def _drop_unused(archive: Archive) -> None:
    """Forget runs and analyses that no table or figure shows any more."""
    tables = [entry["spec"] for entry in archive["tables"].values()]
    tables += [figure["table"] for figure in archive["figures"].values() if figure["table"]]
    used = {cell["run"] for table in tables for cell in table["cells"]}
    used |= {key for figure in archive["figures"].values() for key in figure["analyses"]}
    for part in ("runs", "analyses"):
        archive[part] = {key: value for key, value in archive[part].items() if key in used}


def unpack(archive: Archive, folder: Path) -> dict[str, Path]:
    """Write records and analyses as the workflow keeps them: a folder or file for each key."""
    places = {}
    for key, run in archive["runs"].items():
        places[key] = folder / "runs" / run["name"]
        shared = {name: run[name] for name in SHARED}
        for seed, record in run["seeds"].items():
            points = [
                dict(zip(record["curve"], values, strict=True))
                for values in zip(*record["curve"].values(), strict=True)
            ]
            whole = shared | record | {"key": key, "curve": points, "seed": int(seed)}
            write_json(places[key] / f"seed-{seed}.json", whole)
    for key, found in archive["analyses"].items():
        places[key] = folder / "analyses" / f"{key}.json"
        write_json(places[key], found)
    return places


class Document:
    """A template's words, each filled from an archive; figures go to `pictures`, beside the document."""

    def __init__(self, archive: Archive, folder: Path, pictures: Path) -> None:
        self.archive, self.pictures = archive, pictures
        self.places = unpack(archive, folder)
        self.nowhere = folder / "nothing"

    def filled(self, template: str) -> str:
        """The template with every `{{...}}` replaced."""
        text = re.sub(r"\{\{([^{}]+)\}\}", lambda match: self._word(match[1].strip()), template)
        left = re.search(r"\{\{.*|.*\}\}", text)
        if left:
            raise UserError(f"the template has braces without their partner: {left[0][:60]}")
        return text

    def _word(self, text: str) -> str:
        name, _, rest = text.partition(" ")
        words: dict[str, Callable[..., str]] = {
            "table": self.table,
            "figure": self.figure,
            "cell": self.cell,
            "gain": self.gain,
            "teachers": self.teachers,
            "costs": self.costs,
        }
        if name not in words:
            raise UserError(f"a template has no word '{name}'; there are {', '.join(words)}")
        given = [part.strip() for part in rest.split("|")] if rest else []
        wanted = list(inspect.signature(words[name]).parameters)
        if len(given) != len(wanted):
            form = " | ".join(part.upper() for part in wanted)
            raise UserError(f"{{{{{text}}}}}: write {{{{{f'{name} {form}'.strip()}}}}}")
        return words[name](*given)

    def _table(self, name: str) -> TableSpec:
        if name not in self.archive["tables"]:
            raise UserError(f"the archive has no table '{name}'; there are {', '.join(self.archive['tables'])}")
        return from_dict(TableSpec, self.archive["tables"][name]["spec"])

    def _sources(self, table: TableSpec) -> dict[str, Path]:
        return {cell.run: self.places.get(cell.run, self.nowhere) for cell in table.cells}

    def table(self, name: str) -> str:
        """A table, and the command, date, versions and machine behind it."""
        table, made = self._table(name), self.archive["tables"][name]["made"]
        runs = [self.archive["runs"][cell.run] for cell in table.cells if cell.run in self.archive["runs"]]
        versions = sorted({f"{name} {value}" for run in runs for name, value in run["versions"].items()})
        code = sorted({run["code"][:12] for run in runs})
        behind = [f"`{made['command']}`", made["date"], made["machine"], *versions]
        behind += [f"training code {', '.join(code)}"] if code else []
        return f"{to_markdown(table, cell_rows(table, self._sources(table)))}\n{'; '.join(behind)}."

    def figure(self, name: str) -> str:
        """A figure as a link to its file; words instead while its analyses are not archived."""
        if name not in self.archive["figures"]:
            raise UserError(f"the archive has no figure '{name}'; there are {', '.join(self.archive['figures'])}")
        spec = from_dict(FigureSpec, self.archive["figures"][name])
        if any(key not in self.places for key in spec.analyses):
            return f"({spec.caption}: not made yet.)"
        folders = {key: self.places.get(key, self.nowhere) for key in self.archive["runs"]}
        folders |= self._sources(spec.table) if spec.table else {}
        write_figure(Material(spec, folders, folders | self.places), self.pictures / name)
        for suffix in ("svg", "pdf"):
            (self.pictures / f"{name}.{suffix}").unlink()
        return f"![{spec.caption}]({self.pictures.name}/{name}.png)"

    def _shown(self, name: str, row: str, column: str) -> Shown:
        table = self._table(name)
        _, _, cells = grid(table, cell_rows(table, self._sources(table)))
        for (head, top), shown in cells.items():
            if (" ".join(head), " ".join(top)) == (row, column):
                return shown
        raise UserError(f"table '{name}' has no cell '{row}' | '{column}'")

    def cell(self, name: str, row: str, column: str) -> str:
        """One cell as the table prints it."""
        return ours_text(self._shown(name, row, column))

    def gain(self, name: str, row: str, column: str, other_row: str, other_column: str) -> str:
        """How much better one cell is than another, in points."""
        ours, other = (self._shown(name, *place).ours for place in ((row, column), (other_row, other_column)))
        return f"{ours.mean - other.mean:+.1f}" if ours and other else DASH

    def teachers(self) -> str:
        """Accuracy of every teacher, and the floor it had to reach."""
        lines = ["| teacher | network | top-1 (%) | floor (%) |", "| --- | --- | ---: | ---: |"]
        for name, facts in self.archive["teachers"].items():
            lines.append(f"| {name} | {facts['arch']} | {facts['top1']:.1f} | {facts['floor']:g} |")
        return "\n".join(lines)

    def costs(self) -> str:
        """Minutes of every kind of work, by the command that did it."""
        lines = ["| command | work | minutes |", "| --- | --- | ---: |"]
        for command, hours in self.archive["costs"].items():
            for number, (kind, value) in enumerate(hours.items()):
                what = re.sub(r" [0-9a-f]{10}$", "", kind)  # without the key of a dataset or teacher
                lines.append(f"| {'' if number else f'`{command}`'} | {what} | {60 * value:.1f} |")
        return "\n".join(lines)


def write_document(archive: Path, template: Path, result: Path) -> None:
    """Fill a template; its figures go into a folder of the document's name."""
    with tempfile.TemporaryDirectory() as folder:
        document = Document(read_archive(archive), Path(folder), result.with_suffix(""))
        write_text(result, document.filled(template.read_text(encoding="utf-8")))
