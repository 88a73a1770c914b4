"""Results tables: one rendered grid, and its writers in Markdown, LaTeX and HTML. A cell without records is a dash."""

import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from hald.files import write_json, write_text
from hald.jobs.job import Job
from hald.report.cells import cell_rows, sources
from hald.report.records_page import page, records_page
from hald.report.spec import Printed, TableSpec

DASH = "–"
Place = tuple[tuple[str, ...], tuple[str, ...]]  # heads of row and column


@dataclass(frozen=True)
class Value:
    """What a cell shows: mean and standard deviation of top-1 over the seeds that are there, or an analysis' number."""

    mean: float
    std: float
    seeds: int
    wanted: int
    exact: bool = False  # a number of an analysis: three digits, whatever its size

    def text(self, value: float) -> str:
        """A number of this kind as it is printed."""
        return f"{value:.3g}" if self.exact else f"{value:.1f}"


@dataclass(frozen=True)
class Text:
    """A cell as it is printed: our value, the paper's, and whether ours is the best of its rivals."""

    ours: str = DASH
    paper: str = ""
    best: bool = False


@dataclass(frozen=True)
class Grid:
    """A table as it is printed, whatever the format."""

    id: str
    caption: str
    rows: tuple[str, ...]  # what the heads of rows are
    columns: list[str]
    lines: list[tuple[tuple[str, ...], list[Text]]]  # head and cells
    notes: list[str]


def render(table: TableSpec, cells: pd.DataFrame) -> Grid:
    """The texts of a table, in the order of its definition; `cells` are the rows of `cell_rows`."""
    texts = cell_texts(table, cells)
    heads = dict.fromkeys(cell.row for cell in table.cells)
    columns = dict.fromkeys(cell.column for cell in table.cells)
    lines = [(head, [texts.get((head, column), Text()) for column in columns]) for head in heads]
    return Grid(table.id, table.caption, table.rows, [" ".join(column) for column in columns], lines, footnotes(table))


def cell_texts(table: TableSpec, cells: pd.DataFrame) -> dict[Place, Text]:
    """What is printed in each cell."""
    values: dict[Place, Value | None] = {}
    papers: dict[Place, Printed | None] = {}
    for cell, row in zip(table.cells, cells.to_dict("records"), strict=True):
        place = (cell.row, cell.column)
        papers[place] = cell.paper
        if cell.value is not None:
            values[place] = Value(float(row["value"]), 0.0, 1, 1, exact=True) if pd.notna(row["value"]) else None
        else:
            std = float(row["top1_std"]) if pd.notna(row["top1_std"]) else 0.0
            values[place] = Value(float(row["top1_mean"]), std, row["seeds"], table.seeds) if row["seeds"] else None
    best = _best(table, values)
    return {place: Text(_ours(ours), _paper(papers[place], ours), place in best) for place, ours in values.items()}


def _best(table: TableSpec, values: dict[Place, Value | None]) -> set[Place]:
    """The highest of our accuracies among cells that differ in nothing but the evaluation (or the label)."""
    fields = table.rows + table.columns
    rival = next((name for name in ("evaluation", "label") if name in fields), None)
    groups: dict[Any, list[tuple[float, Place]]] = {}
    for (head, column), ours in values.items() if rival and not table.of_analyses else ():
        same = tuple(part for name, part in zip(fields, head + column, strict=True) if name != rival)
        if ours:
            groups.setdefault(same, []).append((ours.mean, (head, column)))
    return {max(group)[1] for group in groups.values() if len(group) > 1}


def _ours(value: Value | None) -> str:
    """Our mean, deviation and missing seeds, or a dash."""
    if value is None:
        return DASH
    spread = f" ± {value.std:.1f}" if value.seeds > 1 else ""
    missing = f" ({value.seeds}/{value.wanted} seeds)" if value.seeds < value.wanted else ""
    return f"{value.text(value.mean)}{spread}{missing}"


def _paper(paper: Printed | None, ours: Value | None) -> str:
    """The paper's number with its marks and, where we have one, the difference: ` [22.8†, -0.4]`."""
    if paper is None:
        return ""
    marks = ("†" if paper.dagger else "") + ("°" if paper.inferred else "") + ("*" if paper.notes else "")
    difference = ""
    if ours:
        gap = ours.mean - paper.value
        difference = f", {'+' if gap >= 0 else ''}{ours.text(gap)}"
    return f" [{paper.value:g}{marks}{difference}]"


def footnotes(table: TableSpec) -> list[str]:
    """What the numbers are, and what has to be said about the paper's."""
    plural = "s" if table.seeds > 1 else ""
    spread = "Mean ± standard deviation" if table.seeds > 1 else "Accuracy"
    notes = [] if table.of_analyses else [f"{spread} of the last epoch over {table.seeds} seed{plural}."]
    printed = [(cell, cell.paper) for cell in table.cells if cell.paper]
    if printed:
        notes.append(f"In brackets: table {table.number} of the paper, and our value minus the paper's.")
    if any(paper.dagger for _, paper in printed):
        notes.append("† copied by the paper from another publication.")
    fields = sorted({name for _, paper in printed for name in paper.inferred})
    if fields:
        notes.append(f"° the paper's table does not print {', '.join(fields)}; they follow from its other tables.")
    remarks: dict[str, list[str]] = {}
    for cell, paper in printed:
        for note in paper.notes:
            remarks.setdefault(note, []).append(" ".join(cell.row + cell.column))
    notes += [f"* {'; '.join(places)}: {note}." for note, places in remarks.items()]
    return notes


def to_markdown(grid: Grid) -> str:
    """GitHub table with our best evaluation in bold."""
    names, marks = [*grid.rows, *grid.columns], ["---"] * len(grid.rows) + ["---:"] * len(grid.columns)
    lines = [f"**{grid.caption}**", "", _line(names), _line(marks)]
    for head, cells in grid.lines:
        texts = [(f"**{cell.ours}**" if cell.best else cell.ours) + cell.paper for cell in cells]
        lines.append(_line([*head, *texts]))
    return "\n".join([*lines, "", *grid.notes, ""])


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


TEX_SPECIAL = {"_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "–": "--", "±": r"$\pm$"}
TEX_SPECIAL |= {">": "$>$", "<": "$<$", "^": r"\^{}", "~": r"\~{}", "Σ": r"$\Sigma$", "²": "$^2$", "×": r"$\times$"}
TEX_SPECIAL |= {"{": r"\{", "}": r"\}", "\\": r"\textbackslash{}"}
TEX_SPECIAL |= {"†": r"$^\dagger$", "°": r"$^\circ$", "*": r"$^\ast$"}


def to_latex(grid: Grid) -> str:
    """A booktabs table (needs \\usepackage{booktabs})."""
    body = []
    for head, cells in grid.lines:
        texts = [(rf"\textbf{{{_tex(c.ours)}}}" if c.best else _tex(c.ours)) + _tex(c.paper) for c in cells]
        body.append(" & ".join([*map(_tex, head), *texts]) + r" \\")
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_tex(grid.caption)}. {_tex(' '.join(grid.notes))}}}",
            rf"\label{{tab:{grid.id}}}",
            rf"\begin{{tabular}}{{{'l' * len(grid.rows)}{'r' * len(grid.columns)}}}",
            r"\toprule",
            " & ".join(map(_tex, (*grid.rows, *grid.columns))) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _tex(text: str) -> str:
    return "".join(TEX_SPECIAL.get(char, char) for char in text)


def to_html(grid: Grid) -> str:
    """A self-contained page with the table."""
    top = "".join(f'<th class="head">{html.escape(name)}</th>' for name in grid.rows)
    top += "".join(f"<th>{html.escape(name)}</th>" for name in grid.columns)
    body = ""
    for head, cells in grid.lines:
        body += "<tr>" + "".join(f'<th class="head">{html.escape(part)}</th>' for part in head)
        for cell in cells:
            mark = ' class="best"' if cell.best else ""
            mean, _, rest = (cell.ours + cell.paper).partition(" ")
            body += f"<td{mark}>{mean}{f' <small>{html.escape(rest)}</small>' if rest else ''}</td>"
        body += "</tr>\n"
    notes = "<br>".join(map(html.escape, grid.notes))
    return page(
        grid.caption,
        f"<table><caption>{html.escape(grid.caption)}</caption>\n"
        f"<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody></table>\n<p>{notes}</p>",
    )


def make(job: Job[TableSpec]) -> None:
    """Write a table in all its formats and, last, what it means."""
    analyses = [cell.run for cell in job.spec.cells if cell.value is not None]
    write_table(job.spec, sources(job, analyses), job.folder / job.spec.id)
    write_json(job.units[0][0], job.meaning)


def write_table(table: TableSpec, folders: dict[str, Path], stem: Path) -> None:
    """Write `stem`.csv, .md, .tex, .html, and .records.html with the records behind it."""
    cells = cell_rows(table, folders)
    write_text(stem.with_suffix(".csv"), cells.to_csv(index=False))
    grid = render(table, cells)
    write_text(stem.with_suffix(".md"), to_markdown(grid))
    write_text(stem.with_suffix(".tex"), to_latex(grid))
    write_text(stem.with_suffix(".html"), to_html(grid))
    write_text(stem.with_suffix(".records.html"), records_page(table, folders))
