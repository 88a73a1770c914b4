"""The words of a page: functions that its Jinja template calls. They see a study's plans and records, nothing else."""

import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from hald.cli.records import Line
from hald.errors import UserError, suggest
from hald.plan.model import Plan
from hald.report.cells import cell_rows, epoch_steps
from hald.report.figure import Material, write_figure
from hald.report.render import DASH, cell_texts, render, to_markdown
from hald.report.spec import TableSpec

SEEN = {"resized": "random crops", "padded": "shifted images"}  # by a recipe's `crop`
Difference = tuple[float, float | None]  # of two means, and its standard error


@dataclass(frozen=True)
class Part:
    """An experiment of a study: its plan, whose results are what was recorded, and the lines behind them by key."""

    name: str
    plan: Plan
    lines: dict[str, list[Line]]


@dataclass(frozen=True)
class Words:
    """Every public method is a word. Figures are written into `pictures`, beside the page."""

    parts: list[Part]
    lines: list[Line]
    printed: dict[str, Any]
    pictures: Path

    def all(self) -> dict[str, Callable[..., str]]:
        """The words by name."""
        return {name: getattr(self, name) for name in vars(Words) if not name.startswith("_") and name != "all"}

    def table(self, table: str) -> str:
        """A table, and the command, days, machines, versions and code behind it."""
        part, spec = self._table(table)
        behind = [line for key in dict.fromkeys(cell.run for cell in spec.cells) for line in _seeds(part, spec, key)]
        days, machines = (sorted({line[what] for line in behind}) for what in ("day", "machine"))
        records = [line["record"] for line in behind]
        facts = [f"`{_command(part.name)} -- results/tables/{table}.csv`"]
        facts += [" to ".join(dict.fromkeys((days[0], days[-1])))] if behind else []
        facts += machines + sorted({f"{name} {value}" for made in records for name, value in made["versions"].items()})
        facts += [f"code {', '.join(sorted({made['code'][:12] for made in records}))}"] if behind else []
        return f"{to_markdown(render(spec, _cells(part, spec)))}\n{'; '.join(facts)}."

    def figure(self, figure: str) -> str:
        """A figure as a link to its file; words instead while its analyses are not recorded."""
        part = self._part("figures", figure)
        spec = part.plan.figures[figure]
        if not all(key in part.lines for key in spec.analyses):
            return f"({spec.caption}: not made yet.)"
        write_figure(Material(spec, _sources(part.plan)), self.pictures / figure)
        for suffix in ("svg", "pdf"):
            (self.pictures / f"{figure}.{suffix}").unlink()
        return f"![{spec.caption}]({self.pictures.name}/{figure}.png)"

    def cell(self, table: str, row: str, column: str) -> str:
        """One cell as the table prints it: mean and deviation."""
        part, spec = self._table(table)
        cell = spec.cells[_place(spec, row, column)]
        return cell_texts(spec, _cells(part, spec))[cell.row, cell.column].ours

    def gain(self, table: str, row: str, column: str, other_row: str, other_column: str) -> str:
        """How much better one cell is than another, in points, with the standard error of the difference."""
        part, spec = self._table(table)
        cells = _cells(part, spec)
        ours, other = (cells.iloc[_place(spec, *at)] for at in ((row, column), (other_row, other_column)))
        if spec.of_analyses:
            known = pd.notna([ours["value"], other["value"]]).all()
            return f"{ours['value'] - other['value']:+.3g}" if known else DASH
        return _text(_difference(ours, other, _deviations(cells)))

    def mean_gain(self, table: str, evaluation: str, other: str, slc: int) -> str:
        """The mean over the kinds of images of what one evaluation gains over another at an SLC."""
        found = self._differences(table, evaluation, other)
        if slc not in (known := {at: None for _, at in found}):
            raise UserError(f"table '{table}' has no SLC {slc!r}; there are {', '.join(map(str, known))}")
        return _text(_mean([difference for (_, at), difference in found.items() if at == slc]))

    def gains(self, table: str, evaluations: list[str], other: str) -> str:
        """What evaluations gain over another one, by image set and SLC, and where they are ahead."""
        _require(table, evaluations, (cell.place["evaluation"] for cell in self._trainings(table)[1].cells))
        gains = {ours: self._differences(table, ours, other) for ours in evaluations}
        labels = sorted({slc for found in gains.values() for _, slc in found})
        lines = _head(["evaluation", "images"], [*(f"SLC {slc}" for slc in labels), "ahead"])
        for ours, found in gains.items():
            rows = {images: [found.get((images, slc)) for slc in labels] for images, _ in found}
            if len(rows) > 1:
                rows["mean"] = [_mean(column) for column in zip(*rows.values(), strict=True)]
            for images, differences in rows.items():
                ahead = _ahead(labels, [difference and difference[0] for difference in differences])
                lines.append(_row([ours, images, *map(_text, differences), ahead]))
        deviations = _deviations(_cells(*self._trainings(table)))
        known = [f"{deviations[slc]:.1f} at SLC {slc}" for slc in map(str, labels) if slc in deviations]
        note = f"± standard error of the difference, with one deviation for all cells of an SLC ({', '.join(known)})."
        return "\n".join([*lines, *(["", note] if known else [])])

    def setting(self, table: str, row: str, column: str, name: str) -> str:
        """A number of the training behind a cell: lr, eta, beta2, steps, first epochs, hard epochs, last steps, ..."""
        part, spec = self._trainings(table)
        line = next(iter(_seeds(part, spec, spec.cells[_place(spec, row, column)].run)), None)
        if line is None:
            return DASH
        made = line["record"]["spec"]
        lengths = [end - start for start, end in pairwise([*line["record"]["stage_starts"], made["epochs"]])]
        hard = [length for length, stage in zip(lengths, made["stages"], strict=True) if stage["kind"] == "hard"]
        known = made | {
            "steps": made["epochs"] * epoch_steps(made),
            "first epochs": lengths[0],
            "hard epochs": sum(hard),
            "last steps": lengths[-1] * epoch_steps(made),
            "hard_temperature": line["record"].get("hard_temperature", 1.0),
        }
        numbers = {name: value for name, value in known.items() if type(value) in (int, float)}
        if name not in numbers:
            raise UserError(f"the trainings of '{table}' have no number '{name}'. {suggest(name, numbers)}")
        return f"{numbers[name]:,}" if isinstance(numbers[name], int) else f"{numbers[name]:.3g}"

    def stages(self, table: str, evaluations: list[str]) -> str:
        """Accuracy at the end of every stage, by image set and SLC. Stages have to end at epochs that were measured."""
        part, spec = self._trainings(table)
        _require(table, evaluations, (cell.place["evaluation"] for cell in spec.cells))
        rows: dict[tuple[str, str], dict[str, str]] = {}
        for cell in spec.cells:
            if cell.place["evaluation"] in evaluations and (means := _stage_means(part, spec, cell.run)):
                place = str(cell.place["images"]), str(cell.place["slc"])
                rows.setdefault(place, {})[cell.place["evaluation"]] = " → ".join(means)
        lines = _head(["images"], ["SLC", *evaluations])
        return "\n".join(
            lines + [_row([*at, *(row.get(name, DASH) for name in evaluations)]) for at, row in rows.items()]
        )

    def stage(self, table: str, row: str, column: str, number: int) -> str:
        """Accuracy at the end of one stage, the first being 1, of the training behind a cell."""
        part, spec = self._trainings(table)
        means = _stage_means(part, spec, spec.cells[_place(spec, row, column)].run)
        if means and number not in range(1, len(means) + 1):
            raise UserError(f"the training has stages 1 to {len(means)}, and none that is {number!r}")
        return means[number - 1] if means else DASH

    def labels(self, table: str, by: str) -> str:
        """Measured bytes of the labels behind a table, and of each of them, by slc or images."""
        part, spec = self._trainings(table)
        cells = _cells(part, spec).query("label_bytes > 0")  # neither missing nor hard labels alone
        if by not in cells:
            raise UserError(f"table '{table}' has no field '{by}'; try slc or images")
        lines = _head([by], ["labels", "bytes", "bytes per label"])
        for value, rows in cells.groupby(by, sort=False):
            classes = part.plan.runs[rows["run"].iloc[0].rpartition("_")[2]].classes
            counts = (rows["slc_effective"] * classes).round().astype(int)
            each = _range(rows["label_bytes"] / counts, ".1f")
            lines.append(_row([str(value), _range(counts, ",d"), _range(rows["label_bytes"].astype(int), ",d"), each]))
        return "\n".join(lines)

    def paper(self, table: str, **fields: Any) -> str:
        """The paper's number with these fields (evaluation="hald", slc=100), of config/paper/tables.yaml."""
        if table not in self.printed:
            raise UserError(f"the paper has no table '{table}'. {suggest(table, self.printed)}")
        records = self.printed[table]["records"]
        found = [r["value"] for r in records if all(str(r.get(name)) == str(value) for name, value in fields.items())]
        if len(found) != 1:
            given = ", ".join(f"{name} {value}" for name, value in fields.items())
            raise UserError(
                f"table '{table}' of the paper has {len(found)} numbers with {given}; name one by its fields"
            )
        return str(found[0])

    def teachers(self) -> str:
        """Accuracy of every teacher, and the floor it had to reach."""
        lines = _head(["teacher", "network", "trained on"], ["top-1 (%)", "floor (%)"])
        for line in sorted(
            (line for line in self.lines if line["kind"] == "teacher"), key=lambda line: str(line["name"])
        ):
            seen = SEEN[line["settings"]["recipe"]["crop"]] if line["settings"].get("recipe") else DASH
            made = line["record"]
            lines.append(_row([line["name"], made["arch"], seen, f"{made['top1']:.1f}", f"{line['floor']:g}"]))
        return "\n".join(lines)

    def costs(self) -> str:
        """Minutes of every kind of work, by the command that did it."""
        lines, shown = _head(["command", "work"], ["minutes"]), ""
        for line in (line for line in self.lines if line["kind"] == "work"):
            place = line["places"][0]
            command = "" if place["experiment"] == shown else f"`{_command(place['experiment'])}`"
            lines.append(_row([command, place["work"], f"{60 * line['record']['hours']:.1f}"]))
            shown = place["experiment"]
        return "\n".join(lines)

    def _part(self, kind: str, name: str) -> Part:
        """The experiment that defines a table or figure."""
        found = {known: part for part in self.parts for known in getattr(part.plan, kind)}
        if name not in found:
            raise UserError(f"the study has no {kind[:-1]} '{name}'. {suggest(name, found)}")
        return found[name]

    def _table(self, name: str) -> tuple[Part, TableSpec]:
        part = self._part("tables", name)
        return part, part.plan.tables[name]

    def _trainings(self, name: str) -> tuple[Part, TableSpec]:
        """A table of accuracies."""
        part, spec = self._table(name)
        if spec.of_analyses:
            raise UserError(f"table '{name}' shows an analysis, no trainings; it has `table`, `cell` and `gain`")
        return part, spec

    def _differences(self, table: str, ours: str, other: str) -> dict[tuple[str, int], Difference | None]:
        """What one evaluation gains over another, by kind of images and SLC."""
        cells = _cells(*self._trainings(table))
        found = {(row["images"], int(row["slc"]), row["evaluation"]): row for _, row in cells.iterrows()}
        _require(table, [ours, other], (evaluation for *_, evaluation in found))
        deviations = _deviations(cells)
        places = dict.fromkeys((images, slc) for images, slc, _ in found)
        return {at: _difference(found.get((*at, ours)), found.get((*at, other)), deviations) for at in places}


def _command(experiment: str) -> str:
    return f"snakemake --cores all --config 'experiments=[{experiment}]'"


def _cells(part: Part, table: TableSpec) -> pd.DataFrame:
    """One row for each cell, with what was recorded."""
    return cell_rows(table, _sources(part.plan))


def _sources(plan: Plan) -> dict[str, Path]:
    """Folders of the records of runs, and files of analyses, by key."""
    records = {key: plan.folder("evaluate", key) for key in plan.runs}
    return records | {key: plan.file("analysis", key) for key in plan.analyses}


def _place(table: TableSpec, row: str, column: str) -> int:
    """Number of the cell in a row and column."""
    places = [(" ".join(cell.row), " ".join(cell.column)) for cell in table.cells]
    if (row, column) not in places:
        rows, columns = (", ".join(dict.fromkeys(names)) for names in zip(*places, strict=True))
        raise UserError(f"table '{table.id}' has no cell '{row}' | '{column}'; rows: {rows}; columns: {columns}")
    return places.index((row, column))


def _require(table: str, evaluations: list[str] | str, known: Iterable[str]) -> None:
    if isinstance(evaluations, str):
        raise UserError(f'found {evaluations!r} where a list is wanted: ["{evaluations}"]')
    if missing := set(evaluations) - (known := set(known)):
        raise UserError(f"table '{table}' has no evaluation '{min(missing)}'. {suggest(min(missing), sorted(known))}")


def _seeds(part: Part, table: TableSpec, key: str) -> list[Line]:
    """Lines of the seeds of a run that a table shows, or of an analysis."""
    return [line for line in part.lines.get(key, []) if line.get("seed", 0) < table.seeds]


def _stage_means(part: Part, table: TableSpec, run: str) -> list[str]:
    """Mean accuracy of a run at the end of each of its stages; empty without records."""
    ends = zip(*(stage_ends(line["record"]) for line in _seeds(part, table, run)), strict=True)
    return [f"{round(statistics.mean(values), 4):.1f}" for values in ends]


def stage_ends(record: dict[str, Any]) -> list[float]:
    """Accuracy of a training at the end of each of its stages."""
    top1 = {point["epoch"]: point["top1"] for point in record["curve"]}
    ends = [*record["stage_starts"][1:], max(top1)]
    if missing := [epoch for epoch in ends if epoch not in top1]:
        raise UserError(f"accuracy was not measured after epoch {missing[0]}, where a stage ends; see `measure_every`")
    return [top1[epoch] for epoch in ends]


def _head(left: list[str], right: list[str]) -> list[str]:
    """The first two lines of a table."""
    return [_row([*left, *right]), "| " + " | ".join(["---"] * len(left) + ["---:"] * len(right)) + " |"]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _range(values: "pd.Series[Any]", form: str) -> str:
    """The smallest and the largest of some numbers, or the one that they all are."""
    return " to ".join(dict.fromkeys(f"{value:{form}}" for value in (values.min(), values.max())))


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


def _mean(differences: Iterable[Difference | None]) -> Difference | None:
    """Their mean, with the standard error from the seeds; None where one is missing."""
    known = [found or (math.nan, None) for found in differences]
    gain = statistics.mean(gain for gain, _ in known)
    errors = [error for _, error in known if error is not None]
    if math.isnan(gain):
        return None
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
