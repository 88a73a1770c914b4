"""How far the tables of a plan are: cells, label bytes, and the time that is left by recorded timings."""

import operator
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

from hald.errors import UserError
from hald.files import read_json
from hald.plan.activity import Activity
from hald.plan.model import Plan
from hald.plan.summary import efforts, recorded_rates, seconds_left
from hald.plan.todo import KINDS, Need, Todo, Work, cell_need, everything, table_work
from hald.specs.table import TableSpec


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
    at_work: dict[str, int]  # jobs by rule
    stopped: int  # trainings that have a checkpoint and are not running
    untimed: list[str]  # kinds of missing work without a timing


def status(plan: Plan) -> Status:
    """Look at the disk once and say how far everything is."""
    todo, rates = Todo(plan), recorded_rates(plan)
    work = todo.behind(everything(plan))
    activity = Activity(todo, work)
    cells = {table.id: count_cells(todo, activity, table) for table in plan.tables.values()}
    jobs = Counter(rule for rule, _, _ in activity.at_work)
    return Status(
        [_line(todo, rates, name, cells[name], [Need("table", name)]) for name in plan.tables],
        _line(todo, rates, "total", sum(cells.values(), Cells()), everything(plan)),
        {rule: jobs[rule] for rule in KINDS if jobs[rule]},
        _stopped(todo, activity, work),
        sorted({kind for kind, _ in efforts(todo, work)} - rates.keys()),
    )


def count_cells(todo: Todo, activity: Activity, table: TableSpec) -> Cells:
    """A cell is done when all its seeds have records, and running when one that lacks its record is being trained."""
    total = Cells()
    for cell in table.cells:
        need = cell_need(table, cell)
        lacks = todo.missing(need)
        running = activity.is_running(need.rule, need.key, lacks)
        total += Cells(not lacks, running, bool(lacks) and not running, need.count - len(lacks), need.count)
    return total


def _line(todo: Todo, rates: dict[str, float], name: str, cells: Cells, needs: list[Need]) -> Line:
    work = todo.behind(needs)
    tables = [todo.plan.tables[need.key] for need in needs if need.rule == "table"]
    there, to_come = label_bytes(todo, tables)
    return Line(name, cells, there, to_come, seconds_left(todo, rates, work), not work)


def _stopped(todo: Todo, activity: Activity, work: Work) -> int:
    """Trainings with a checkpoint at which nobody is working."""
    return sum(
        todo.checkpoint(rule, key, seed) is not None and not activity.is_running(rule, key, [seed])
        for (rule, key), seeds in work.items()
        if rule == "evaluate"
        for seed in seeds
    )


def label_bytes(todo: Todo, tables: Iterable[TableSpec]) -> tuple[int, int]:
    """Bytes of the label views that tables need: measured of those that are there, estimated of those to come."""
    plan = todo.plan
    needed: dict[str, int] = {}
    for table in tables:
        for labels, views in table_work(plan, table)[1].items():
            needed[labels] = max(needed.get(labels, 0), views)
    there = to_come = 0
    for labels, views in needed.items():
        lacks = todo.missing(Need("relabel", labels, views))
        there += sum(_marked_bytes(plan.marker(labels, view)) for view in range(views) if view not in lacks)
        to_come += plan.labels[labels].view_bytes * len(lacks)
    return there, to_come


def _marked_bytes(marker: Path) -> int:
    """Size of a view as its marker states it."""
    try:
        return int(sum(entry["bytes"] for entry in read_json(marker)["files"].values()))
    except FileNotFoundError:  # removed since we looked
        return 0
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{marker} is damaged ({error}); remove it and run again to label that view anew") from error
