"""Results tables: pure functions of result records. A cell without records is a dash, never a guess."""

import html
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from hald.errors import UserError
from hald.files import read_json, write_text
from hald.specs.table import TableSpec

DASH = "–"


@dataclass(frozen=True)
class Value:
    """What a cell shows: mean and standard deviation of top-1 over the seeds that are there."""

    mean: float
    std: float
    seeds: int
    wanted: int


def cell_rows(table: TableSpec, folders: dict[str, Path]) -> pd.DataFrame:
    """One row per cell (long form): place, run, mean, std, number of seeds, label bytes, effective SLC."""
    rows = []
    for cell in table.cells:
        records = [
            read_record(path)
            for seed in range(table.seeds)
            if (path := folders[cell.run] / f"seed-{seed}.json").is_file()
        ]
        place = dict(zip(table.rows + table.columns, cell.row + cell.column, strict=True))
        rows.append(place | _summary(records) | {"seeds_planned": table.seeds, "run": folders[cell.run].name})
    return pd.DataFrame(rows)


def read_record(path: Path) -> dict[str, Any]:
    """One result record, or a message that names the broken file."""
    try:
        record = read_json(path)
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
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]], dict[Any, Value]]:
    """Row heads, column heads and values, in the order of the definition."""
    heads = list(dict.fromkeys(cell.row for cell in table.cells))
    columns = list(dict.fromkeys(cell.column for cell in table.cells))
    values = {}
    for cell, row in zip(table.cells, cells.to_dict("records"), strict=True):
        if row["seeds"]:
            std = row["top1_std"] if pd.notna(row["top1_std"]) else 0.0
            values[cell.row, cell.column] = Value(float(row["top1_mean"]), float(std), row["seeds"], table.seeds)
    return heads, columns, values


def _best(heads: list[tuple[str, ...]], columns: list[tuple[str, ...]], values: dict[Any, Value]) -> set[Any]:
    """The highest cell of each row that has more than one."""
    best = set()
    for head in heads:
        filled = [(values[head, column].mean, (head, column)) for column in columns if (head, column) in values]
        if len(filled) > 1:
            best.add(max(filled)[1])
    return best


def _text(value: Value | None) -> str:
    if value is None:
        return DASH
    spread = f" ± {value.std:.1f}" if value.seeds > 1 else ""
    missing = f" ({value.seeds}/{value.wanted} seeds)" if value.seeds < value.wanted else ""
    return f"{value.mean:.1f}{spread}{missing}"


def to_markdown(table: TableSpec, cells: pd.DataFrame) -> str:
    """GitHub table with the best cell of a row in bold."""
    heads, columns, values = grid(table, cells)
    best = _best(heads, columns, values)
    names = [*table.rows, *(" ".join(column) for column in columns)]
    lines = [f"**{table.caption}**", "", _line(names), _line(["---"] * len(table.rows) + ["---:"] * len(columns))]
    for head in heads:
        shown = [
            f"**{_text(values.get((head, c)))}**" if (head, c) in best else _text(values.get((head, c)))
            for c in columns
        ]
        lines.append(_line([*head, *shown]))
    return "\n".join([*lines, "", _footnote(table), ""])


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _footnote(table: TableSpec) -> str:
    return f"Mean ± standard deviation of the last epoch over {table.seeds} seed{'s' if table.seeds > 1 else ''}."


TEX_SPECIAL = {"_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "–": "--", "±": r"$\pm$"}


def _tex(text: str) -> str:
    return "".join(TEX_SPECIAL.get(char, char) for char in text)


def to_latex(table: TableSpec, cells: pd.DataFrame) -> str:
    """A booktabs table (needs \\usepackage{booktabs})."""
    heads, columns, values = grid(table, cells)
    best = _best(heads, columns, values)
    names = [_tex(name) for name in (*table.rows, *(" ".join(column) for column in columns))]
    body = []
    for head in heads:
        texts = [(_tex(_text(values.get((head, c)))), (head, c) in best) for c in columns]
        shown = [rf"\textbf{{{text}}}" if bold else text for text, bold in texts]
        body.append(" & ".join([*(_tex(part) for part in head), *shown]) + r" \\")
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_tex(table.caption)}. {_tex(_footnote(table))}}}",
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
td.best{font-weight:700;background:#eaf4ee}td small{color:#6b7785}p{color:#6b7785;font-size:.85rem}"""


def to_html(table: TableSpec, cells: pd.DataFrame) -> str:
    """A self-contained page with the table."""
    heads, columns, values = grid(table, cells)
    best = _best(heads, columns, values)
    top = "".join(f'<th class="head">{html.escape(name)}</th>' for name in table.rows)
    top += "".join(f"<th>{html.escape(' '.join(column))}</th>" for column in columns)
    body = ""
    for head in heads:
        body += "<tr>" + "".join(f'<th class="head">{html.escape(part)}</th>' for part in head)
        for column in columns:
            mark = ' class="best"' if (head, column) in best else ""
            mean, _, spread = _text(values.get((head, column))).partition(" ")
            body += f"<td{mark}>{mean}{f' <small>{spread}</small>' if spread else ''}</td>"
        body += "</tr>\n"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(table.caption)}</title>'
        f"<style>{STYLE}</style></head><body>\n<table><caption>{html.escape(table.caption)}</caption>\n"
        f"<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody></table>\n<p>{_footnote(table)}</p>\n</body></html>\n"
    )


def write_table(table: TableSpec, folders: dict[str, Path], stem: Path) -> None:
    """Write `stem`.csv, .md, .tex and .html."""
    cells = cell_rows(table, folders)
    write_text(stem.with_suffix(".csv"), cells.to_csv(index=False))
    write_text(stem.with_suffix(".md"), to_markdown(table, cells))
    write_text(stem.with_suffix(".tex"), to_latex(table, cells))
    write_text(stem.with_suffix(".html"), to_html(table, cells))
