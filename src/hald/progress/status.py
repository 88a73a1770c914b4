"""How far the tables of a plan are: cells, label bytes, and the time that is left by recorded timings."""

import operator
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

from hald.errors import UserError
from hald.files import read_json
from hald.plan.graph import Graph
from hald.plan.model import Plan
from hald.plan.stage import Need, Work
from hald.plan.stages import STAGES
from hald.progress.activity import Activity
from hald.progress.rates import recorded_rates
from hald.progress.summary import efforts, seconds_left, units_behind
from hald.report.spec import Cell, TableSpec


@dataclass(frozen=True)
class Cells:
    """Cells of a table by state, and the share of its trainings that have a record."""

    done: int = 0
    running: int = 0
    missing: int = 0
    trained: int = 0
    trainings: int = 0

    def __add__(self, other: "Cells") -> "Cells":
        return Cells(*map(operator.add, astuple(self), astuple(other)))


@dataclass(frozen=True)
class Line:
    """One table, or all of them: then labels and work that tables share are counted once."""

    name: str
    cells: Cells
    label_bytes: int  # measured, of the views that are there
    bytes_to_come: int  # estimated, of the others
    seconds: float | None  # of all missing work, one job after the other; None: some of it was never timed
    finished: bool  # nothing is missing, and the table is written


@dataclass(frozen=True)
class Status:
    """All tables of a plan at one moment."""

    tables: list[Line]
    total: Line
    at_work: dict[str, int]  # units by rule
    stopped: int  # trainings that have a checkpoint and are not running
    untimed: list[str]  # kinds of missing work without a timing


def status(plan: Plan) -> Status:
    """Look at the disk once and say how far everything is."""
    graph, rates = Graph(plan), recorded_rates(plan)
    everything = graph.targets()
    work = graph.work_behind(everything)
    activity = Activity(graph, work)
    cells = {table.id: count_cells(graph, activity, table) for table in plan.tables.values()}
    running = Counter(stage for stage, _, _ in activity.at_work)
    return Status(
        [_line(graph, rates, name, cells[name], [Need("table", name)]) for name in plan.tables],
        _line(graph, rates, "total", sum(cells.values(), Cells()), everything),
        {stage: running[stage] for stage in STAGES if running[stage]},
        _stopped(graph, activity, work),
        sorted({kind for kind, _ in efforts(graph, work)} - rates.keys()),
    )


def count_cells(graph: Graph, activity: Activity, table: TableSpec) -> Cells:
    """A cell is done when all its seeds have records, and running when one that lacks its record is being trained."""
    total = Cells()
    for cell in table.cells:
        need = _need(table, cell)
        lacks = graph.missing(need)
        running = activity.is_running(need.stage, need.key, lacks)
        total += Cells(not lacks, running, bool(lacks) and not running, need.units - len(lacks), need.units)
    return total


def _need(table: TableSpec, cell: Cell) -> Need:
    """What fills a cell: the records of a run, or an analysis."""
    return Need("evaluate", cell.run, table.seeds) if cell.value is None else Need("analysis", cell.run)


def _line(graph: Graph, rates: dict[str, float], name: str, cells: Cells, needs: list[Need]) -> Line:
    work = graph.work_behind(needs)
    tables = [graph.plan.tables[need.key] for need in needs if need.stage == "table"]
    there, to_come = label_bytes(graph, tables)
    return Line(name, cells, there, to_come, seconds_left(graph, rates, work), not work)


def _stopped(graph: Graph, activity: Activity, work: Work) -> int:
    """Trainings with a checkpoint at which nobody is working."""
    return sum(
        graph.checkpoint(stage, key, seed) is not None and not activity.is_running(stage, key, [seed])
        for (stage, key), seeds in work.items()
        if stage == "evaluate"
        for seed in seeds
    )


def label_bytes(graph: Graph, tables: Iterable[TableSpec]) -> tuple[int, int]:
    """Bytes of the label views that tables need: measured of those that are there, estimated of those to come."""
    plan = graph.plan
    needed: dict[str, int] = {}
    for table in tables:
        for labels, views in units_behind(plan, table)["relabel"].items():
            needed[labels] = max(needed.get(labels, 0), views)
    there = to_come = 0
    for labels, views in needed.items():
        lacks = graph.missing(Need("relabel", labels, views))
        there += sum(_marked_bytes(plan.file("relabel", labels, view)) for view in range(views) if view not in lacks)
        to_come += plan.labels[labels].view_bytes * len(lacks)
    return there, to_come


def _marked_bytes(marker: Path) -> int:
    """Size of a view as its marker states it."""
    try:
        return int(sum(entry["bytes"] for entry in read_json(marker)["files"].values()))
    except FileNotFoundError:  # removed since we looked
        return 0
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{marker} is damaged ({error}); remove it and run again to label that view anew") from error
