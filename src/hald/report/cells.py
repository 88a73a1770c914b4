"""From records to the rows of a table: pure functions. A cell without records has no numbers, never a guess."""

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from hald.errors import UserError
from hald.files import read_json
from hald.jobs.job import Job
from hald.report.spec import Printed, TableSpec


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


def sources(job: Job[Any], analyses: Iterable[str]) -> dict[str, Path]:
    """Records of each run, and the result file of each analysis, by key."""
    return job.made_from | {key: job.made_from[key] / "analysis.json" for key in analyses}
