"""What a plan amounts to: counts, bytes, hours from recorded timings, Snakemake jobs, and what sharing spares."""

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from hald.files import read_json
from hald.plan.model import Plan
from hald.plan.sharing import sharing, views_alone
from hald.plan.todo import KINDS, Need, Todo, Work, job_counts, table_work


@dataclass(frozen=True)
class Line:
    """One kind of thing: how many are planned, how many exist, and the hours of the rest (None: no timing yet)."""

    name: str
    planned: int
    there: int
    hours: float | None


def summarize(plan: Plan) -> list[Line]:
    """Datasets, teachers, image sets, label views and training runs of a plan."""
    todo, rates = Todo(plan), recorded_rates(plan)
    units = [Need("rank" if key in plan.rankings else "recover", key, n) for key, n in plan.unit_counts.items()]
    return [
        _line("datasets", [Need("dataset", key) for key in plan.datasets], todo, rates),
        _line("teachers", [Need("squeeze", key) for key in plan.teachers], todo, rates),
        _line("BN statistics", [Need("statistics", key) for key in plan.statistics], todo, rates),
        _line("image units", units, todo, rates),
        _line("image sets", [Need("synthesize", key) for key in plan.images], todo, rates),
        _line("label views", [Need("relabel", key, count) for key, count in plan.views.items()], todo, rates),
        _line("training runs", [Need("evaluate", key, count) for key, count in plan.seeds.items()], todo, rates),
        _line("analyses", [Need("analysis", key) for key in plan.analyses], todo, rates),
    ]


def _line(name: str, needs: list[Need], todo: Todo, rates: dict[str, float]) -> Line:
    missing = {(need.rule, need.key): set(todo.missing(need)) for need in needs}
    planned, lacks = sum(need.count for need in needs), sum(map(len, missing.values()))
    seconds = seconds_left(todo, rates, missing) if all(KINDS[need.rule].effort for need in needs) else None
    return Line(name, planned, planned - lacks, None if seconds is None else seconds / 3600)


def seconds_left(todo: Todo, rates: dict[str, float], work: Work) -> float | None:
    """Time of unfinished work on the fastest device that was timed; None if a part of it has no timing."""
    left = efforts(todo, work)
    return sum(rates[kind] * amount for kind, amount in left) if all(kind in rates for kind, _ in left) else None


def efforts(todo: Todo, work: Work) -> list[tuple[str, float]]:
    """Kind and amount of all in `work` that is left to do and ever timed (datasets, downloads and tables are not)."""
    found = []
    for (rule, key), units in work.items():
        effort = KINDS[rule].effort
        if effort and units:
            kind, amount = effort(todo.plan, key)
            found.append((kind, amount * sum(1 - todo.begun(rule, key, unit) for unit in units)))
    return found


def recorded_rates(plan: Plan) -> dict[str, float]:
    """Seconds per unit of work of each kind on its fastest device, over all timing records of results and stores."""
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    work: dict[tuple[str, str], float] = defaultdict(float)
    patterns = [
        (plan.results, "teachers/*/*/timing.json"),
        (plan.results, "rankings/*/*/timings/*.json"),
        (plan.results, "units/*/*/timings/*.json"),
        (plan.results, "statistics/*/*/timing.json"),
        (plan.results, "images/*/*/timing.json"),
        (plan.results, "runs/*/*/*.timing.json"),
        (plan.results, "analyses/*/*.timing.json"),
        (plan.stores, "*/*/timings/*.json"),
    ]
    for root, pattern in patterns:
        for path in Path(root).glob(pattern):
            try:
                record = read_json(path)
                what = (record["kind"], record["device"])
                took, did = float(record["seconds"]), float(record["work"])
            except (OSError, ValueError, KeyError, TypeError):  # a timing is worth no complaint
                continue
            seconds[what] += took
            work[what] += did
    rates: dict[str, float] = {}
    for (kind, device), amount in work.items():
        if amount:
            rates[kind] = min(rates.get(kind, math.inf), seconds[kind, device] / amount)
    return rates


def report(plan: Plan) -> str:
    """The text of `hald plan`."""
    lines = summarize(plan)
    out = [f"{'':<15}{'planned':>9}{'there':>9}{'to do':>9}   hours to do"]
    for line in lines:
        hours = "-" if line.planned == line.there else "no timing yet" if line.hours is None else f"{line.hours:.2f}"
        out.append(f"{line.name:<15}{line.planned:>9,}{line.there:>9,}{line.planned - line.there:>9,}   {hours}")
    trained = [table for table in plan.tables.values() if not table.of_analyses]
    asked = sum(len(table.cells) * table.seeds for table in trained)
    unique = sum(plan.seeds[run] for run in {cell.run for table in trained for cell in table.cells})
    label_bytes = sum(plan.labels[key].view_bytes * views for key, views in plan.views.items())
    alone = sum(spec.view_bytes * views_alone(plan, key) for key, spec in plan.labels.items())
    out += [
        "",
        f"tables         {len(plan.tables):>9,}   {', '.join(plan.tables)}",
        f"shared         {asked - unique:>9,}   of {asked:,} training runs of the tables are asked for more than once",
        f"label bytes    {size(label_bytes):>9}   in {len(plan.labels)} stores (about), {size(alone)} without nesting",
        _jobs(plan),
        "",
        *_sharing(plan),
    ]
    return "\n".join(out)


@dataclass(frozen=True)
class Cost:
    """What one table takes if nothing of it exists: trained students, images they train on, bytes of labels, hours.

    No hours (None) where a part of it has no timing yet.
    """

    table: str
    students: int
    images: float
    label_bytes: float
    hours: float | None


def table_costs(plan: Plan) -> list[Cost]:
    """Students, labels and hours of every table on its own. What tables share is counted in each of them."""
    rates = recorded_rates(plan)
    costs = []
    for name, table in plan.tables.items():
        runs, views = table_work(plan, table)
        efforts = [(plan.runs[run].effort, seeds) for run, seeds in runs.items()]
        images = sum(work * seeds for (_, work), seeds in efforts)
        efforts += [(plan.labels[key].effort, count) for key, count in views.items()]
        known = all(kind in rates for (kind, _), _ in efforts)
        hours = sum(rates[kind] * work * count for (kind, work), count in efforts) / 3600 if known else None
        label_bytes = sum(plan.labels[key].view_bytes * count for key, count in views.items())
        costs.append(Cost(name, sum(runs.values()), images, label_bytes, hours))
    return costs


def cost_report(plan: Plan) -> str:
    """The text of `hald plan --tables`."""
    costs = table_costs(plan)
    width = max(len(cost.table) for cost in costs) + 2
    out = [f"{'table':<{width}}{'students':>9}{'million images':>16}{'labels':>11}   hours of labelling and training"]
    for cost in costs:
        hours = "no timing yet" if cost.hours is None else f"{cost.hours:.2f}"
        images = f"{cost.images / 1e6:,.{0 if cost.images >= 1e7 else 2}f}"
        out.append(f"{cost.table:<{width}}{cost.students:>9,}{images:>16}{size(cost.label_bytes):>11}   {hours}")
    return "\n".join(out)


def _jobs(plan: Plan) -> str:
    """What is still to do in Snakemake's count."""
    counts = job_counts(plan)
    rules = ", ".join(f"{rule} {count:,}" for rule, count in counts.items()) or "nothing to be done"
    return f"snakemake jobs {sum(counts.values()):>9,}   {rules}"


def _sharing(plan: Plan) -> list[str]:
    """What nesting and sharing spare: SLCs take a prefix of one store, IPCs of one set, tables the same runs."""
    lines = [f"{'sharing':<17}{'planned':>9}{'not nested':>14}{'cell by cell':>16}"]
    for line in sharing(plan):
        lines.append(f"{line.name:<17}{line.planned:>9,}{line.not_nested:>14,}{line.by_cell:>16,}")
    return lines


def size(count: float) -> str:
    """Bytes for people: 1.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
