"""Documents of archived results: templates whose `{{...}}` are filled from the archive alone.

They can be made again anywhere, and no number in them is typed by hand.

    {{table ID}}  {{figure ID}}                 a table with what it was made by; a figure, written beside the document
    {{cell ID | ROW | COLUMN}}                  one cell: mean and deviation
    {{gain ID | ROW | COLUMN | ROW | COLUMN}}   the mean of the first cell minus that of the second
    {{gains ID | EVALUATION | OTHER}}           one evaluation minus another, by image set and SLC, and where the
                                                gain ends
    {{stages ID | EVALUATION}}                  accuracy at the end of each stage of an evaluation, by image set and SLC
    {{labels ID}}                               measured bytes of the labels behind a table
    {{teachers}}  {{costs}}                     accuracy of the teachers; minutes of every kind of work
"""

import inspect
import math
import re
import statistics
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from hald.archive import Archive, read_archive, unpack
from hald.errors import UserError
from hald.figures import Material, write_figure
from hald.files import write_text
from hald.specs.base import from_dict
from hald.specs.figure import FigureSpec
from hald.specs.table import TableSpec
from hald.tables import DASH, Shown, cell_rows, grid, ours_text, to_markdown


class Document:
    """A template's words, each filled from an archive; figures go to `pictures`, beside the document."""

    def __init__(self, archive: Archive, folder: Path, pictures: Path) -> None:
        self.archive, self.pictures = archive, pictures
        self.places = unpack(archive, folder)
        self.nowhere = folder / "nothing"

    def filled(self, template: str) -> str:
        """The template with every `{{...}}` replaced."""
        word = re.compile(r"\{\{([^{}]+)\}\}")
        if left := re.search(r"\{\{.*|.*\}\}", word.sub("", template)):
            raise UserError(f"the template has braces without their partner: {left[0][:60]}")
        return word.sub(lambda match: self._word(match[1].strip()), template)

    def _word(self, text: str) -> str:
        name, _, rest = text.partition(" ")
        words: dict[str, Callable[..., str]] = {
            "table": self.table,
            "figure": self.figure,
            "cell": self.cell,
            "gain": self.gain,
            "gains": self.gains,
            "stages": self.stages,
            "labels": self.labels,
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
        seeds = [(run, seed) for run in runs for seed in _seeds(table, run)]
        code = sorted({seed.get("differs", {}).get("code", run["code"])[:12] for run, seed in seeds})
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

    def gains(self, name: str, evaluation: str, other: str) -> str:
        """What one evaluation gains over another, with the standard error of the difference."""
        table = self._table(name)
        cells = cell_rows(table, self._sources(table))
        found = {(row["images"], int(row["slc"]), row["evaluation"]): row for _, row in cells.iterrows()}
        sets, labels = (list(dict.fromkeys(key[i] for key in found)) for i in (0, 1))
        heads = ["images", *(f"SLC {slc}" for slc in labels), "no gain from"]
        lines = [f"| {' | '.join(heads)} |", "| --- |" + " ---: |" * (len(heads) - 1)]
        for images in sets:
            pairs = [(found.get((images, slc, evaluation)), found.get((images, slc, other))) for slc in labels]
            row = [
                str(images),
                *(_difference(*pair) for pair in pairs),
                _crossing(labels, [_gain(*pair) for pair in pairs]),
            ]
            lines.append(f"| {' | '.join(row)} |")
        return "\n".join(lines)

    def stages(self, name: str, evaluation: str) -> str:
        """Mean accuracy at the end of every stage. Stages have to end at epochs that were measured."""
        table = self._table(name)
        cells = [cell for cell in table.cells if cell.place["evaluation"] == evaluation]
        found = [(cell.place, self.archive["runs"][cell.run]) for cell in cells if cell.run in self.archive["runs"]]
        orders = {tuple(stage["kind"] for stage in run["spec"]["stages"]) for _, run in found}
        if len(orders) != 1:
            raise UserError(f"table '{name}' has {len(orders)} orders of stages of '{evaluation}', not one")
        (kinds,) = orders
        heads = [f"{'last' if kind in kinds[:i] else 'after'} {kind}" for i, kind in enumerate(kinds)]
        lines = [f"| images | SLC | {' | '.join(heads)} |", "| --- |" + " ---: |" * (len(kinds) + 1)]
        for place, run in found:
            ends = zip(*map(stage_ends, _seeds(table, run)), strict=True)
            means = [f"{round(statistics.mean(values), 4):.1f}" for values in ends]
            lines.append(f"| {place['images']} | {place['slc']} | {' | '.join(means)} |")
        return "\n".join(lines)

    def labels(self, name: str) -> str:
        """How many bytes the labels behind a table take on disk, and each of them."""
        table = self._table(name)
        cells = cell_rows(table, self._sources(table)).query("label_bytes > 0")  # neither missing nor hard labels alone
        lines = [
            "| images | labels per class | labels | bytes | bytes per label |",
            "| --- | ---: | ---: | ---: | ---: |",
        ]
        for (images, slc), rows in cells.groupby(["images", "slc_effective"], sort=False):
            run = self.archive["runs"][rows["run"].iloc[0].rpartition("_")[2]]
            count, size = round(slc * run["spec"]["classes"]), int(rows["label_bytes"].iloc[0])
            lines.append(f"| {images} | {slc:g} | {count:,} | {size:,} | {size / count:.1f} |")
        return "\n".join(lines)

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


def _seeds(table: TableSpec, run: dict[str, Any]) -> list[dict[str, Any]]:
    """The archived seeds of a run that a table shows."""
    return [seed for number, seed in run["seeds"].items() if int(number) < table.seeds]


def stage_ends(seed: dict[str, Any]) -> list[float]:
    """Accuracy of an archived training at the end of each of its stages."""
    top1 = dict(zip(seed["curve"]["epoch"], seed["curve"]["top1"], strict=True))
    ends = [*seed["stage_starts"][1:], max(top1)]
    if missing := [epoch for epoch in ends if epoch not in top1]:
        raise UserError(f"accuracy was not measured after epoch {missing[0]}, where a stage ends; see `measure_every`")
    return [top1[epoch] for epoch in ends]


def _gain(ours: pd.Series | None, other: pd.Series | None) -> float | None:
    """Difference of two means; None where a run is missing."""
    if ours is None or other is None or not (ours["seeds"] and other["seeds"]):
        return None
    return float(ours["top1_mean"] - other["top1_mean"])


def _difference(ours: pd.Series | None, other: pd.Series | None) -> str:
    """Difference of two means and its standard error; a dash where a run is missing."""
    gain = _gain(ours, other)
    if gain is None or ours is None or other is None:
        return DASH
    if min(ours["seeds"], other["seeds"]) < 2:
        return f"{gain:+.1f}"
    error = math.sqrt(sum(row["top1_std"] ** 2 / row["seeds"] for row in (ours, other)))
    return f"{gain:+.1f} ± {error:.1f}"


def _crossing(labels: list[int], gains: list[float | None]) -> str:
    """Where a gain falls to zero over the number of labels, straight lines between them on a logarithmic scale."""
    known = [(slc, gain) for slc, gain in zip(labels, gains, strict=True) if gain is not None]
    if len(known) < len(labels):
        return DASH
    if known[-1][1] > 0:
        return f"above SLC {known[-1][0]}"
    for (slc, gain), (after, loss) in reversed(list(pairwise(known))):
        if gain > 0:
            return f"SLC {slc * (after / slc) ** (gain / (gain - loss)):.0f}"
    return f"below SLC {known[0][0]}"


def write_document(archive: Path, template: Path, result: Path) -> None:
    """Fill a template; its figures go into a folder of the document's name."""
    with tempfile.TemporaryDirectory() as folder:
        document = Document(read_archive(archive), Path(folder), result.with_suffix(""))
        write_text(result, document.filled(template.read_text(encoding="utf-8")))
