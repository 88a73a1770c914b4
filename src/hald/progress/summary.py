"""What a plan amounts to: counts, bytes, hours from recorded timings, Snakemake jobs, and what sharing spares."""

from collections import Counter
from dataclasses import dataclass

from hald.files import size
from hald.plan.graph import Graph
from hald.plan.model import Plan
from hald.plan.stage import Need, Work
from hald.plan.stages import STAGES
from hald.progress.rates import recorded_rates
from hald.progress.sharing import sharing, views_alone
from hald.report.spec import TableSpec

COUNTED = ("dataset", "squeeze", "statistics", "rank", "recover", "synthesize", "relabel", "evaluate", "analysis")


@dataclass(frozen=True)
class Line:
    """One kind of thing: how many are planned, how many exist, and the hours of the rest (None: no timing yet)."""

    name: str
    planned: int
    there: int
    hours: float | None


def summarize(graph: Graph) -> list[Line]:
    """Datasets, teachers, image sets, label views, training runs and analyses of a plan."""
    rates = recorded_rates(graph.plan)
    names = dict.fromkeys(STAGES[stage].things for stage in COUNTED)
    return [_line(graph, rates, name, [s for s in COUNTED if STAGES[s].things == name]) for name in names]


def _line(graph: Graph, rates: dict[str, float], name: str, stages: list[str]) -> Line:
    plan = graph.plan
    needs = [
        Need(stage, key, plan.needed.get((stage, key), 0) if STAGES[stage].blocks else 1)
        for stage in stages
        for key in plan.specs[stage]
    ]
    missing = {(need.stage, need.key): graph.missing(need) for need in needs}
    planned, lacks = sum(need.units for need in needs), sum(map(len, missing.values()))
    seconds = seconds_left(graph, rates, missing) if all(STAGES[stage].timed for stage in stages) else None
    return Line(name, planned, planned - lacks, None if seconds is None else seconds / 3600)


def seconds_left(graph: Graph, rates: dict[str, float], work: Work) -> float | None:
    """Time of unfinished work on the fastest device that was timed; None if a part of it has no timing."""
    left = efforts(graph, work)
    return sum(rates[kind] * amount for kind, amount in left) if all(kind in rates for kind, _ in left) else None


def efforts(graph: Graph, work: Work) -> list[tuple[str, float]]:
    """Kind and amount of all in `work` that is left to do and ever timed (datasets, downloads and tables are not)."""
    found = []
    for (stage, key), units in work.items():
        if STAGES[stage].timed and units:
            kind, amount = graph.plan.specs[stage][key].effort
            found.append((kind, amount * sum(1 - graph.begun(stage, key, unit) for unit in units)))
    return found


def job_counts(graph: Graph) -> dict[str, int]:
    """Jobs to run for everything, by rule, as Snakemake counts them: with one for the target `all`."""
    counts = Counter(job.stage for job in graph.jobs_to_run())
    return {stage: counts[stage] for stage in STAGES if counts[stage]} | ({"all": 1} if counts else {})


def report(plan: Plan) -> str:
    """The text of `hald plan`."""
    graph = Graph(plan)
    out = [f"{'':<15}{'planned':>9}{'there':>9}{'to do':>9}   hours to do"]
    for line in summarize(graph):
        hours = "-" if line.planned == line.there else "no timing yet" if line.hours is None else f"{line.hours:.2f}"
        out.append(f"{line.name:<15}{line.planned:>9,}{line.there:>9,}{line.planned - line.there:>9,}   {hours}")
    trained = [table for table in plan.tables.values() if not table.of_analyses]
    asked = sum(len(table.cells) * table.seeds for table in trained)
    unique = sum(plan.needed["evaluate", run] for run in {cell.run for table in trained for cell in table.cells})
    label_bytes = sum(spec.view_bytes * plan.needed["relabel", key] for key, spec in plan.labels.items())
    alone = sum(spec.view_bytes * views_alone(plan, key) for key, spec in plan.labels.items())
    out += [
        "",
        f"tables         {len(plan.tables):>9,}   {', '.join(plan.tables)}",
        f"shared         {asked - unique:>9,}   of {asked:,} training runs of the tables are asked for more than once",
        f"label bytes    {size(label_bytes):>9}   in {len(plan.labels)} stores (about), {size(alone)} without nesting",
        _jobs(graph),
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


def units_behind(plan: Plan, table: TableSpec) -> dict[str, dict[str, int]]:
    """Units of each stage and key behind a table, as if nothing of it existed."""
    found: dict[str, dict[str, int]] = {stage: {} for stage in STAGES}
    waiting = [need for needs in plan.needs("table", table.id).values() for need in needs]
    while waiting:
        need = waiting.pop()
        if need.units > found[need.stage].get(need.key, 0):
            found[need.stage][need.key] = need.units
            waiting += [other for others in plan.needs(need.stage, need.key).values() for other in others]
    return found


def table_costs(plan: Plan) -> list[Cost]:
    """Students, labels and hours of every table on its own. What tables share is counted in each of them."""
    rates = recorded_rates(plan)
    costs = []
    for name, table in plan.tables.items():
        behind = units_behind(plan, table)
        runs = [(plan.runs[run].effort, seeds) for run, seeds in behind["evaluate"].items()]
        labels = [(plan.labels[key], views) for key, views in behind["relabel"].items()]
        work = runs + [(spec.effort, views) for spec, views in labels]
        known = all(kind in rates for (kind, _), _ in work)
        hours = sum(rates[kind] * amount * count for (kind, amount), count in work) / 3600 if known else None
        images = sum(amount * seeds for (_, amount), seeds in runs)
        label_bytes = sum(spec.view_bytes * views for spec, views in labels)
        costs.append(Cost(name, sum(behind["evaluate"].values()), images, label_bytes, hours))
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


def _jobs(graph: Graph) -> str:
    """What is still to do in Snakemake's count."""
    counts = job_counts(graph)
    rules = ", ".join(f"{rule} {count:,}" for rule, count in counts.items()) or "nothing to be done"
    return f"snakemake jobs {sum(counts.values()):>9,}   {rules}"


def _sharing(plan: Plan) -> list[str]:
    """What nesting and sharing spare: SLCs take a prefix of one store, IPCs of one set, tables the same runs."""
    lines = [f"{'sharing':<17}{'planned':>9}{'not nested':>14}{'cell by cell':>16}"]
    for line in sharing(plan):
        lines.append(f"{line.name:<17}{line.planned:>9,}{line.not_nested:>14,}{line.by_cell:>16,}")
    return lines
