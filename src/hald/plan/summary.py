"""What a plan amounts to: counts, bytes, and hours from recorded timings."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hald.files import read_json
from hald.plan.model import Plan


@dataclass(frozen=True)
class Line:
    """One kind of thing: how many are planned, how many exist, and the hours of the rest (None: no timing yet)."""

    name: str
    planned: int
    there: int
    hours: float | None


def summarize(plan: Plan) -> list[Line]:
    """Datasets, teachers, image sets, label views and training runs of a plan."""
    rates = recorded_rates(plan)
    datasets = [(plan.dataset_dir(key) / "manifest.json").exists() for key in plan.datasets]
    teachers = [(spec.effort, (plan.teacher_dir(key) / "teacher.json").exists()) for key, spec in plan.teachers.items()]
    units = [
        (spec.effort, plan.unit(key, unit).exists())
        for key, spec in (plan.rankings | plan.units).items()
        for unit in range(plan.unit_counts[key])
    ]
    images = [(spec.effort, (plan.images_dir(key) / "image_set.json").exists()) for key, spec in plan.images.items()]
    views = [
        (spec.effort, plan.marker(key, view).exists())
        for key, spec in plan.labels.items()
        for view in range(plan.views[key])
    ]
    runs = [
        (spec.effort, plan.record(key, seed).exists())
        for key, spec in plan.runs.items()
        for seed in range(plan.seeds[key])
    ]
    return [
        Line("datasets", len(datasets), sum(datasets), 0.0),
        _line("teachers", teachers, rates),
        _line("image units", units, rates),
        _line("image sets", images, rates),
        _line("label views", views, rates),
        _line("training runs", runs, rates),
    ]


def _line(name: str, items: Iterable[tuple[tuple[str, float], bool]], rates: dict[str, float]) -> Line:
    items = list(items)
    open_items = [effort for effort, there in items if not there]
    known = all(kind in rates for kind, _ in open_items)
    hours = sum(rates[kind] * work for kind, work in open_items) / 3600 if known else None
    return Line(name, len(items), len(items) - len(open_items), hours)


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
        hours = "no timing yet" if line.hours is None else "-" if line.planned == line.there else f"{line.hours:.2f}"
        out.append(f"{line.name:<15}{line.planned:>9,}{line.there:>9,}{line.planned - line.there:>9,}   {hours}")
    asked = sum(len(table.cells) * table.seeds for table in plan.tables.values())
    unique = sum(plan.seeds.values())
    label_bytes = sum(plan.labels[key].view_bytes * views for key, views in plan.views.items())
    alone = sum(spec.view_bytes * _views_alone(plan, key) for key, spec in plan.labels.items())
    out += [
        "",
        f"tables         {len(plan.tables):>9,}   {', '.join(plan.tables)}",
        f"shared         {asked - unique:>9,}   of {asked:,} training runs of the tables are shared by two of them",
        f"label bytes    {size(label_bytes):>9}   in {len(plan.labels)} stores (about), {size(alone)} without nesting",
    ]
    return "\n".join(out)


@dataclass(frozen=True)
class Cost:
    """What one table takes if nothing of it exists: trained students, bytes of labels, hours (None: no timing yet)."""

    table: str
    students: int
    label_bytes: float
    hours: float | None


def table_costs(plan: Plan) -> list[Cost]:
    """Students, labels and hours of every table on its own. What tables share is counted in each of them."""
    rates = recorded_rates(plan)
    costs = []
    for name, table in plan.tables.items():
        runs = {cell.run: plan.runs[cell.run] for cell in table.cells}
        views: dict[str, int] = defaultdict(int)
        for run in runs.values():
            views[run.labels] = max(views[run.labels], -(-run.pool // plan.labels[run.labels].batches))
        efforts = [(run.effort, table.seeds) for run in runs.values()]
        efforts += [(plan.labels[key].effort, count) for key, count in views.items()]
        known = all(kind in rates for (kind, _), _ in efforts)
        hours = sum(rates[kind] * work * count for (kind, work), count in efforts) / 3600 if known else None
        label_bytes = sum(plan.labels[key].view_bytes * count for key, count in views.items())
        costs.append(Cost(name, len(runs) * table.seeds, label_bytes, hours))
    return costs


def cost_report(plan: Plan) -> str:
    """The text of `hald plan --tables`."""
    costs = table_costs(plan)
    width = max(len(cost.table) for cost in costs) + 2
    out = [f"{'table':<{width}}{'students':>9}{'labels':>11}   hours of labelling and training"]
    for cost in costs:
        hours = "no timing yet" if cost.hours is None else f"{cost.hours:.2f}"
        out.append(f"{cost.table:<{width}}{cost.students:>9,}{size(cost.label_bytes):>11}   {hours}")
    return "\n".join(out)


def _views_alone(plan: Plan, labels: str) -> int:
    """Views there would be if every SLC had labels of its own."""
    batches = plan.labels[labels].batches
    return sum({-(-spec.pool // batches) for spec in plan.runs.values() if spec.labels == labels})


def size(count: float) -> str:
    """Bytes for people: 1.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
