"""Documents of archived results: templates whose `{{...}}` are filled from the archive and the paper's tables alone.

They can be made again anywhere, and no number in them is typed by hand.

    {{table ID}}  {{figure ID}}                 a table with what it was made by; a figure, written beside the document
    {{cell ID | ROW | COLUMN}}                  one cell: mean and deviation
    {{gain ID | ROW | COLUMN | ROW | COLUMN}}   the mean of the first cell minus that of the second
    {{mean_gain ID | EVALUATION | OTHER | SLC}} the mean of that over the kinds of images
    {{gains ID | EVALUATIONS | OTHER}}          evaluations (a, b, c) minus another, by image set and SLC, and where
                                                they are ahead
    {{setting ID | ROW | COLUMN | NAME}}        of the training behind a cell: lr, eta, beta2, steps, first epochs,
                                                hard epochs, last steps
    {{stages ID | EVALUATIONS}}                 accuracy at the end of each stage, by image set and SLC
    {{stage ID | ROW | COLUMN | NUMBER}}        accuracy at the end of stage 1, 2 or 3 of the training behind a cell
    {{labels ID | FIELD}}                       measured bytes of the labels behind a table, by slc or images
    {{paper TABLE | FIELD VALUE, FIELD VALUE}}  the paper's number, of config/paper/tables.yaml
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
from hald.plan.config import read_yaml
from hald.specs.base import from_dict
from hald.specs.figure import FigureSpec
from hald.specs.table import TableSpec
from hald.tables import DASH, Shown, cell_rows, epoch_steps, grid, ours_text, to_markdown

SEEN = {"resized": "random crops", "padded": "shifted images"}  # by a recipe's `crop`


class Document:
    """A template's words, each filled from an archive; figures go to `pictures`, beside the document."""

    def __init__(self, archive: Archive, printed: Path, folder: Path, pictures: Path) -> None:
        self.archive, self.pictures = archive, pictures
        self.printed = read_yaml(printed)
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
            "mean_gain": self.mean_gain,
            "gains": self.gains,
            "setting": self.setting,
            "stages": self.stages,
            "stage": self.stage,
            "labels": self.labels,
            "paper": self.paper,
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
        """A table, and the command, days, machines, versions and code behind it."""
        table, command = self._table(name), self.archive["tables"][name]["command"]
        keys = dict.fromkeys(cell.run for cell in table.cells)
        behind = [self.archive["analyses"][key] for key in keys if key in self.archive["analyses"]]
        for run in (self.archive["runs"][key] for key in keys if key in self.archive["runs"]):
            behind += [run | seed | seed.get("differs", {}) for seed in _seeds(table, run)]
        days, machines = (sorted({made["made"][i] for made in behind}) for i in (0, 1))
        versions = sorted({f"{name} {value}" for made in behind for name, value in made["versions"].items()})
        facts = [f"`{command} -- results/tables/{name}.csv`"]
        facts += [" to ".join(dict.fromkeys((days[0], days[-1]))), *machines, *versions] if behind else []
        facts += [f"code {', '.join(sorted({made['code'][:12] for made in behind}))}"] if behind else []
        return f"{to_markdown(table, self._cells(table))}\n{'; '.join(facts)}."

    def _cells(self, table: TableSpec) -> pd.DataFrame:
        return cell_rows(table, self._sources(table))

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

    def _place(self, name: str, row: str, column: str) -> tuple[TableSpec, int]:
        """A table and the number of one of its cells."""
        table = self._table(name)
        for number, cell in enumerate(table.cells):
            if (" ".join(cell.row), " ".join(cell.column)) == (row, column):
                return table, number
        raise UserError(f"table '{name}' has no cell '{row}' | '{column}'")

    def _shown(self, name: str, row: str, column: str) -> Shown:
        table, number = self._place(name, row, column)
        _, _, cells = grid(table, self._cells(table))
        return cells[table.cells[number].row, table.cells[number].column]

    def cell(self, name: str, row: str, column: str) -> str:
        """One cell as the table prints it."""
        return ours_text(self._shown(name, row, column))

    def setting(self, name: str, row: str, column: str, setting: str) -> str:
        """A setting of the training behind a cell; lengths of stages as they were in its first seed."""
        table, number = self._place(name, row, column)
        run = self.archive["runs"].get(table.cells[number].run)
        if run is None:
            return DASH
        spec = run["spec"]
        steps = epoch_steps(spec)
        starts = next(iter(run["seeds"].values()))["stage_starts"]
        lengths = [end - start for start, end in pairwise([*starts, spec["epochs"]])]
        known = spec | {
            "steps": spec["epochs"] * steps,
            "first epochs": lengths[0],
            "hard epochs": sum(
                length for length, stage in zip(lengths, spec["stages"], strict=True) if stage["kind"] == "hard"
            ),
            "last steps": lengths[-1] * steps,
            "hard_temperature": run.get("hard_temperature", 1.0),
        }
        if not isinstance(known.get(setting), int | float):
            raise UserError(
                f"the trainings of '{name}' have no number '{setting}'; "
                "try steps, first epochs, hard epochs, last steps, lr, eta, beta2"
            )
        return f"{known[setting]:,}" if isinstance(known[setting], int) else f"{known[setting]:.3g}"

    def gain(self, name: str, row: str, column: str, other_row: str, other_column: str) -> str:
        """How much better one cell is than another, in points, with the standard error of the difference."""
        table = self._table(name)
        cells = self._cells(table)
        numbers = [self._place(name, *place)[1] for place in ((row, column), (other_row, other_column))]
        if table.of_analyses:
            ours, other = (cells["value"].iloc[number] for number in numbers)
            return DASH if pd.isna([ours, other]).any() else f"{ours - other:+.3g}"
        ours, other = (cells.iloc[number] for number in numbers)
        return _text(_difference(ours, other, _deviations(cells)))

    def paper(self, table: str, fields: str) -> str:
        """The one number of a table of the paper whose record has these fields."""
        if table not in self.printed:
            raise UserError(f"the paper has no table '{table}'; there are {', '.join(self.printed)}")
        wanted = [part.split(" ", 1) for part in _names(fields)]
        found = [
            record["value"]
            for record in self.printed[table]["records"]
            if all(str(record.get(name)) == value for name, value in wanted)
        ]
        if len(found) != 1:
            raise UserError(
                f"table '{table}' of the paper has {len(found)} numbers with {fields}; name one by its fields"
            )
        return str(found[0])

    def _differences(self, name: str, ours: str, other: str) -> dict[tuple[str, int], "Difference | None"]:
        """What one evaluation gains over another, by kind of images and SLC."""
        cells = self._cells(self._table(name))
        found = {(row["images"], int(row["slc"]), row["evaluation"]): row for _, row in cells.iterrows()}
        if missing := {ours, other} - {evaluation for *_, evaluation in found}:
            raise UserError(f"table '{name}' has no evaluation '{min(missing)}'")
        deviations = _deviations(cells)
        places = dict.fromkeys((images, slc) for images, slc, _ in found)
        return {at: _difference(found.get((*at, ours)), found.get((*at, other)), deviations) for at in places}

    def mean_gain(self, name: str, evaluation: str, other: str, slc: str) -> str:
        """The mean over the kinds of images of what one evaluation gains over another."""
        found = self._differences(name, evaluation, other)
        return _text(_mean(tuple(difference for (_, at), difference in found.items() if str(at) == slc)))

    def gains(self, name: str, evaluations: str, other: str) -> str:
        """What evaluations gain over another one, with the error of the difference, and where they are ahead."""
        gains = {ours: self._differences(name, ours, other) for ours in _names(evaluations)}
        labels = sorted({slc for found in gains.values() for _, slc in found})
        heads = ["evaluation", "images", *(f"SLC {slc}" for slc in labels), "ahead"]
        lines = [f"| {' | '.join(heads)} |", "| --- | --- |" + " ---: |" * (len(heads) - 2)]
        for ours, found in gains.items():
            sets = list(dict.fromkeys(images for images, _ in found))
            rows = {images: [found.get((images, slc)) for slc in labels] for images in sets}
            if len(sets) > 1:
                rows["mean"] = [_mean(column) for column in zip(*rows.values(), strict=True)]
            for images, differences in rows.items():
                ahead = _ahead(labels, [difference and difference[0] for difference in differences])
                lines.append(f"| {ours} | {images} | {' | '.join(map(_text, differences))} | {ahead} |")
        deviations = _deviations(self._cells(self._table(name)))
        known = [f"{deviations[slc]:.1f} at SLC {slc}" for slc in map(str, labels) if slc in deviations]
        note = f"± standard error of the difference, with one deviation for all cells of an SLC ({', '.join(known)})."
        return "\n".join([*lines, *(["", note] if known else [])])

    def stages(self, name: str, evaluations: str) -> str:
        """Mean accuracy at the end of every stage. Stages have to end at epochs that were measured."""
        table, names = self._table(name), _names(evaluations)
        rows: dict[tuple[str, str], dict[str, str]] = {}
        for cell in table.cells:
            run = self.archive["runs"].get(cell.run)
            if run and cell.place["evaluation"] in names:
                place = str(cell.place["images"]), str(cell.place["slc"])
                rows.setdefault(place, {})[str(cell.place["evaluation"])] = " → ".join(_stage_means(table, run))
        lines = [f"| images | SLC | {' | '.join(names)} |", "| --- |" + " ---: |" * (len(names) + 1)]
        lines += [f"| {' | '.join([*place, *(found.get(n, DASH) for n in names)])} |" for place, found in rows.items()]
        return "\n".join(lines)

    def stage(self, name: str, row: str, column: str, number: str) -> str:
        """Mean accuracy at the end of one stage, the first being 1, of the training behind a cell."""
        table, place = self._place(name, row, column)
        run = self.archive["runs"].get(table.cells[place].run)
        if run is None:
            return DASH
        means = _stage_means(table, run)
        if number not in map(str, range(1, len(means) + 1)):
            raise UserError(f"the training has stages 1 to {len(means)}, and none that is '{number}'")
        return means[int(number) - 1]

    def labels(self, name: str, by: str) -> str:
        """How many bytes the labels behind a table take on disk, and each of them, by a field of its cells."""
        cells = self._cells(self._table(name)).query("label_bytes > 0")  # neither missing nor hard labels alone
        if by not in cells:
            raise UserError(f"table '{name}' has no field '{by}'; try slc or images")
        lines = [f"| {by} | labels | bytes | bytes per label |", "| --- | ---: | ---: | ---: |"]
        for value, rows in cells.groupby(by, sort=False):
            classes = self.archive["runs"][rows["run"].iloc[0].rpartition("_")[2]]["spec"]["classes"]
            counts = (rows["slc_effective"] * classes).round().astype(int)
            shown = (
                _range(counts, ",d"),
                _range(rows["label_bytes"].astype(int), ",d"),
                _range(rows["label_bytes"] / counts, ".1f"),
            )
            lines.append(f"| {value} | {' | '.join(shown)} |")
        return "\n".join(lines)

    def teachers(self) -> str:
        """Accuracy of every teacher, and the floor it had to reach."""
        lines = ["| teacher | network | trained on | top-1 (%) | floor (%) |", "| --- | --- | --- | ---: | ---: |"]
        for name, facts in self.archive["teachers"].items():
            seen = SEEN[facts["spec"]["recipe"]["crop"]] if facts["spec"].get("recipe") else DASH
            lines.append(f"| {name} | {facts['arch']} | {seen} | {facts['top1']:.1f} | {facts['floor']:g} |")
        return "\n".join(lines)

    def costs(self) -> str:
        """Minutes of every kind of work, by the command that did it."""
        lines = ["| command | work | minutes |", "| --- | --- | ---: |"]
        for command, hours in self.archive["costs"].items():
            for number, (kind, value) in enumerate(hours.items()):
                what = re.sub(r" [0-9a-f]{10}$", "", kind)  # without the key of a dataset or teacher
                lines.append(f"| {'' if number else f'`{command}`'} | {what} | {60 * value:.1f} |")
        return "\n".join(lines)


def _range(values: "pd.Series[Any]", form: str) -> str:
    """The smallest and the largest of some numbers, or the one that they all are."""
    return " to ".join(dict.fromkeys(f"{value:{form}}" for value in (values.min(), values.max())))


def _names(text: str) -> list[str]:
    """The parts of `a, b, c`."""
    return [name.strip() for name in text.split(",")]


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


def _stage_means(table: TableSpec, run: dict[str, Any]) -> list[str]:
    ends = zip(*map(stage_ends, _seeds(table, run)), strict=True)
    return [f"{round(statistics.mean(values), 4):.1f}" for values in ends]


Difference = tuple[float, float | None]  # of two means, and its standard error


def _deviations(cells: pd.DataFrame) -> dict[str, float]:
    """Standard deviation of one training by SLC, from all cells that have more than one seed.

    A cell's own two or three seeds say next to nothing about it.
    """
    several = cells[cells["seeds"] > 1]
    weight = (several["seeds"] - 1).groupby(several["slc"])
    squares = (several["top1_std"].astype(float) ** 2 * (several["seeds"] - 1)).groupby(several["slc"])
    return {str(slc): math.sqrt(value) for slc, value in (squares.sum() / weight.sum()).items()}


def _difference(ours: pd.Series | None, other: pd.Series | None, deviations: dict[str, float]) -> Difference | None:
    """Difference of two cells' means; None where a run is missing."""
    if ours is None or other is None or not (ours["seeds"] and other["seeds"]):
        return None
    gain = float(ours["top1_mean"] - other["top1_mean"])
    if not all(row["slc"] in deviations for row in (ours, other)):
        return gain, None
    return gain, math.sqrt(sum(deviations[row["slc"]] ** 2 / row["seeds"] for row in (ours, other)))


def _mean(differences: tuple[Difference | None, ...]) -> Difference | None:
    """Their mean, with the error that the trainings' own leave it; None where one is missing."""
    known = [found for found in differences if found]
    if len(known) < len(differences):
        return None
    gain = statistics.mean(gain for gain, _ in known)
    errors = [error for _, error in known if error is not None]
    return gain, math.sqrt(sum(error**2 for error in errors)) / len(known) if len(errors) == len(known) else None


def _text(difference: Difference | None) -> str:
    if difference is None:
        return DASH
    gain, error = difference
    return f"{round(gain, 1) + 0.0:+.1f}" + (f" ± {error:.1f}" if error is not None else "")  # -0.0 + 0.0 is 0.0


def _ahead(labels: list[int], gains: list[float | None]) -> str:
    """Where a gain is positive over the number of labels, straight lines between them on a logarithmic scale."""
    known = [gain for gain in gains if gain is not None]
    if len(known) < len(labels):
        return DASH
    points = list(zip(labels, known, strict=True))
    changes = [
        f"SLC {slc * (after / slc) ** (gain / (gain - then)):.0f}"
        for (slc, gain), (after, then) in pairwise(points)
        if (gain > 0) != (then > 0)
    ]
    if not changes:
        return "everywhere" if known[0] > 0 else "nowhere"
    edges = [*([""] if known[0] > 0 else []), *changes, *([""] if known[-1] > 0 else [])]
    parts = zip(edges[::2], edges[1::2], strict=True)
    return ", ".join(
        f"{start} to {end}" if start and end else f"from {start}" if start else f"up to {end}" for start, end in parts
    )


def write_document(archive: Path, printed: Path, template: Path, result: Path) -> None:
    """Fill a template from an archive and the paper's tables; its figures go into a folder of the document's name."""
    with tempfile.TemporaryDirectory() as folder:
        document = Document(read_archive(archive), printed, Path(folder), result.with_suffix(""))
        write_text(result, document.filled(template.read_text(encoding="utf-8")))
