"""Results tables: pure functions of result records. A cell without records is a dash, never a guess."""

import html
import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from hald.errors import UserError
from hald.files import read_json, write_json, write_text
from hald.jobs.job import Job
from hald.report.spec import Printed, TableSpec

DASH = "–"


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
class Shown:
    """A cell as it is printed: our value (None: no run yet) and the paper's."""

    ours: Value | None
    paper: Printed | None


def cell_rows(table: TableSpec, folders: dict[str, Path]) -> pd.DataFrame:
    """One row per cell (long form): place, what was found, the paper's number, and which run or analysis it is.

    `folders`: the records of each run, or the result file of each analysis. Accuracies have mean, deviation, number of
    seeds, label bytes and effective SLC; numbers of analyses stand in the column `value`.
    """
    rows = []
    for cell in table.cells:
        source = folders[cell.run]
        place = {name: str(value) for name, value in cell.place.items() if value is not None}
        place |= dict(zip(table.rows + table.columns, cell.row + cell.column, strict=True))
        if cell.value is not None:
            value = found_value(source, cell.subject, cell.value)
            rows.append(place | {"value": value} | _beside(cell.paper, value) | {"analysis": source.parent.name})
            continue
        seeds = [source / f"seed-{seed}.json" for seed in range(table.seeds)]
        ours = _summary([read_record(path, cell.run) for path in seeds if path.is_file()])
        facts = {"seeds_planned": table.seeds, "run": source.name}
        rows.append(place | ours | _beside(cell.paper, ours["top1_mean"]) | facts)
    return pd.DataFrame(rows)


def found_value(result: Path, subject: int, path: str) -> float | None:
    """The number at a dotted path of what an analysis found about a subject; None where there is no result yet."""
    if not result.is_file():
        return None
    value: Any = read_json(result)["subjects"][subject]
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            known = ", ".join(value) if isinstance(value, dict) else "a number"
            raise UserError(f"{result} has no value '{path}': at '{part}' there is {known}")
        value = value[part]
    return None if value is None else float(value)


def epoch_steps(spec: Mapping[str, Any]) -> int:
    """Optimiser steps of an epoch of a training, from the spec in its record."""
    return -(-int(spec["classes"] * spec["ipc"]) // int(spec["batch"]))


def _beside(paper: Printed | None, ours: float | None) -> dict[str, Any]:
    """The paper's number of a cell, the difference to ours, and what has to be said about it."""
    if paper is None:
        return dict.fromkeys(("paper", "paper_std", "difference", "paper_copied", "paper_inferred", "paper_notes"))
    return {
        "paper": paper.value,
        "paper_std": paper.std,
        "difference": None if ours is None else round(ours - paper.value, 4),
        "paper_copied": paper.dagger,
        "paper_inferred": " ".join(paper.inferred),
        "paper_notes": "; ".join(paper.notes),
    }


def read_record(path: Path, run: str) -> dict[str, Any]:
    """One result record of a run, or a message that names a broken or misplaced file."""
    try:
        record = read_json(path)
        if record.get("key", run) != run:
            raise UserError(f"{path} is the record of another run ({record['key']}); remove it and run again")
        return {name: record[name] for name in ("top1", "top5", "label_bytes", "slc_effective")}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a whole result record ({error}); remove it and run again") from error


def _summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    if not records:
        return {
            "top1_mean": None,
            "top1_std": None,
            "top5_mean": None,
            "seeds": 0,
            "label_bytes": None,
            "slc_effective": None,
        }
    top1 = [record["top1"] for record in records]
    return {
        "top1_mean": round(statistics.mean(top1), 4),
        "top1_std": round(statistics.stdev(top1), 4) if len(top1) > 1 else None,
        "top5_mean": round(statistics.mean(record["top5"] for record in records), 4),
        "seeds": len(records),
        "label_bytes": records[0]["label_bytes"],
        "slc_effective": records[0]["slc_effective"],
    }


def grid(
    table: TableSpec, cells: pd.DataFrame
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]], dict[Any, Shown]]:
    """Row heads, column heads and cells, in the order of the definition."""
    heads = list(dict.fromkeys(cell.row for cell in table.cells))
    columns = list(dict.fromkeys(cell.column for cell in table.cells))
    shown = {}
    for cell, row in zip(table.cells, cells.to_dict("records"), strict=True):
        ours = None
        if cell.value is not None:
            ours = Value(float(row["value"]), 0.0, 1, 1, exact=True) if pd.notna(row["value"]) else None
        elif row["seeds"]:
            std = row["top1_std"] if pd.notna(row["top1_std"]) else 0.0
            ours = Value(float(row["top1_mean"]), float(std), row["seeds"], table.seeds)
        shown[cell.row, cell.column] = Shown(ours, cell.paper)
    return heads, columns, shown


def _best(table: TableSpec, cells: dict[Any, Shown]) -> set[Any]:
    """The highest of our accuracies among cells that differ in nothing but the evaluation (or the label)."""
    fields = table.rows + table.columns
    rival = next((name for name in ("evaluation", "label") if name in fields), None)
    groups: dict[Any, list[tuple[float, Any]]] = {}
    for head, column in cells if rival and not table.of_analyses else ():
        ours = cells[head, column].ours
        same = tuple(part for name, part in zip(fields, head + column, strict=True) if name != rival)
        if ours:
            groups.setdefault(same, []).append((ours.mean, (head, column)))
    return {max(group)[1] for group in groups.values() if len(group) > 1}


def ours_text(cell: Shown | None) -> str:
    """Our mean, deviation and missing seeds, or a dash."""
    if cell is None or cell.ours is None:
        return DASH
    value = cell.ours
    spread = f" ± {value.std:.1f}" if value.seeds > 1 else ""
    missing = f" ({value.seeds}/{value.wanted} seeds)" if value.seeds < value.wanted else ""
    return f"{value.text(value.mean)}{spread}{missing}"


def _paper(cell: Shown | None) -> str:
    """The paper's number with its marks and, where we have one, the difference: ` [22.8†, -0.4]`."""
    if cell is None or cell.paper is None:
        return ""
    marks = (
        ("†" if cell.paper.dagger else "") + ("°" if cell.paper.inferred else "") + ("*" if cell.paper.notes else "")
    )
    difference = ""
    if cell.ours:
        gap = cell.ours.mean - cell.paper.value
        difference = f", {'+' if gap >= 0 else ''}{cell.ours.text(gap)}"
    return f" [{cell.paper.value:g}{marks}{difference}]"


def to_markdown(table: TableSpec, cells: pd.DataFrame) -> str:
    """GitHub table with our best evaluation in bold."""
    heads, columns, shown = grid(table, cells)
    best = _best(table, shown)
    names = [*table.rows, *(" ".join(column) for column in columns)]
    lines = [f"**{table.caption}**", "", _line(names), _line(["---"] * len(table.rows) + ["---:"] * len(columns))]
    for head in heads:
        texts = [
            (f"**{ours_text(shown.get(place))}**" if place in best else ours_text(shown.get(place)))
            + _paper(shown.get(place))
            for place in ((head, column) for column in columns)
        ]
        lines.append(_line([*head, *texts]))
    return "\n".join([*lines, "", *footnotes(table), ""])


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


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


TEX_SPECIAL = {"_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "–": "--", "±": r"$\pm$"}
TEX_SPECIAL |= {">": "$>$", "<": "$<$", "^": r"\^{}", "~": r"\~{}", "Σ": r"$\Sigma$", "²": "$^2$", "×": r"$\times$"}
TEX_SPECIAL |= {"{": r"\{", "}": r"\}", "\\": r"\textbackslash{}"}
TEX_SPECIAL |= {"†": r"$^\dagger$", "°": r"$^\circ$", "*": r"$^\ast$"}


def _tex(text: str) -> str:
    return "".join(TEX_SPECIAL.get(char, char) for char in text)


def to_latex(table: TableSpec, cells: pd.DataFrame) -> str:
    """A booktabs table (needs \\usepackage{booktabs})."""
    heads, columns, shown = grid(table, cells)
    best = _best(table, shown)
    notes = _tex(" ".join(footnotes(table)))
    names = [_tex(name) for name in (*table.rows, *(" ".join(column) for column in columns))]
    body = []
    for head in heads:
        texts = []
        for place in ((head, column) for column in columns):
            ours = _tex(ours_text(shown.get(place)))
            texts.append((rf"\textbf{{{ours}}}" if place in best else ours) + _tex(_paper(shown.get(place))))
        body.append(" & ".join([*(_tex(part) for part in head), *texts]) + r" \\")
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_tex(table.caption)}. {notes}}}",
            rf"\label{{tab:{table.id}}}",
            rf"\begin{{tabular}}{{{'l' * len(table.rows)}{'r' * len(columns)}}}",
            r"\toprule",
            " & ".join(names) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


STYLE = """body{font:15px/1.5 system-ui,sans-serif;color:#1c2733;margin:2rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
caption{caption-side:top;text-align:left;font-weight:600;padding-bottom:.6rem}
th,td{padding:.35rem .9rem;border-bottom:1px solid #dde3ea;text-align:right;white-space:nowrap}
th.head{text-align:left}thead th{border-bottom:2px solid #1c2733}
td.best{font-weight:700;background:#eaf4ee}td small{color:#6b7785}
details{margin:.3rem 0}pre{font-size:.75rem;background:#f5f7f9;padding:.8rem;overflow:auto}
p{color:#6b7785;font-size:.85rem}"""


def to_html(table: TableSpec, cells: pd.DataFrame) -> str:
    """A self-contained page with the table."""
    heads, columns, shown = grid(table, cells)
    best = _best(table, shown)
    top = "".join(f'<th class="head">{html.escape(name)}</th>' for name in table.rows)
    top += "".join(f"<th>{html.escape(' '.join(column))}</th>" for column in columns)
    body = ""
    for head in heads:
        body += "<tr>" + "".join(f'<th class="head">{html.escape(part)}</th>' for part in head)
        for column in columns:
            mark = ' class="best"' if (head, column) in best else ""
            cell = shown.get((head, column))
            mean, _, rest = (ours_text(cell) + _paper(cell)).partition(" ")
            body += f"<td{mark}>{mean}{f' <small>{html.escape(rest)}</small>' if rest else ''}</td>"
        body += "</tr>\n"
    notes = "<br>".join(html.escape(note) for note in footnotes(table))
    return _page(
        table.caption,
        f"<table><caption>{html.escape(table.caption)}</caption>\n"
        f"<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody></table>\n<p>{notes}</p>",
    )


def records_page(table: TableSpec, folders: dict[str, Path]) -> str:
    """A self-contained page with every record behind a table: one line each, the whole of it on a click."""
    parts = []
    for run, source in {cell.run: folders[cell.run] for cell in table.cells}.items():
        files = [source] if source.suffix == ".json" else [source / f"seed-{seed}.json" for seed in range(table.seeds)]
        for path in files:
            if path.is_file():
                record = read_json(path)
                top1 = f" <b>{record['top1']:.2f} %</b>" if "top1" in record else ""
                folder = path.parent
                name = f"{folder.parent.name}/{folder.name}{'' if path == source else ' ' + path.stem}"
                text = html.escape(json.dumps(record, indent=1, ensure_ascii=False))
                parts.append(f"<details><summary>{html.escape(name)}{top1}</summary><pre>{text}</pre></details>")
            else:
                parts.append(f"<p>{html.escape(str(path))}: not there yet ({run})</p>")
    return _page(f"{table.caption}: run records", "\n".join(parts))


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def sources(job: Job[Any], analyses: Iterable[str]) -> dict[str, Path]:
    """Records of each run, and the result file of each analysis, by key."""
    return job.made_from | {key: job.made_from[key] / "analysis.json" for key in analyses}


def make(job: Job[TableSpec]) -> None:
    """Write a table in all its formats and, last, what it means."""
    analyses = [cell.run for cell in job.spec.cells if cell.value is not None]
    write_table(job.spec, sources(job, analyses), job.folder / job.spec.id)
    write_json(job.units[0][0], job.meaning)


def write_table(table: TableSpec, folders: dict[str, Path], stem: Path) -> None:
    """Write `stem`.csv, .md, .tex, .html, and .records.html with the records behind it."""
    cells = cell_rows(table, folders)
    write_text(stem.with_suffix(".csv"), cells.to_csv(index=False))
    write_text(stem.with_suffix(".md"), to_markdown(table, cells))
    write_text(stem.with_suffix(".tex"), to_latex(table, cells))
    write_text(stem.with_suffix(".html"), to_html(table, cells))
    write_text(stem.with_suffix(".records.html"), records_page(table, folders))
