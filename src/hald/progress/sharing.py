"""How much work is done once that tables, SLCs and IPCs ask for several times."""

from dataclasses import dataclass

from hald.plan.model import Plan
from hald.synthesis.spec import FromUnits


@dataclass(frozen=True)
class Shared:
    """One kind of work: how much is planned, and how much it would be with less sharing."""

    name: str
    planned: int
    not_nested: int  # if every SLC had labels of its own, and every IPC images of its own
    by_cell: int  # if every cell of every table were made on its own


def sharing(plan: Plan) -> list[Shared]:
    """Training runs, label views and optimised images."""
    cells = [cell.run for table in plan.tables.values() for cell in table.cells if cell.run in plan.runs]
    trainings = sum(plan.needed["evaluate", run] for run in plan.runs)
    asked = sum(len(table.cells) * table.seeds for table in plan.tables.values() if not table.of_analyses)
    sets = [_optimised(plan, key) for key in plan.images]
    return [
        Shared("training runs", trainings, trainings, asked),
        Shared(
            "label views",
            sum(plan.needed["relabel", key] for key in plan.labels),
            sum(views_alone(plan, key) for key in plan.labels),
            sum(_views(plan, run) for run in cells if plan.runs[run].pool),
        ),
        Shared(
            "images optimised",
            sum(max(images for units, images in sets if units == key) for key in {key for key, _ in sets if key}),
            sum(images for _, images in sets),
            sum(_optimised(plan, plan.labels[plan.runs[run].labels].images)[1] for run in cells),
        ),
    ]


def views_alone(plan: Plan, labels: str) -> int:
    """Views there would be of a store if every SLC had labels of its own."""
    return sum({_views(plan, run) for run, spec in plan.runs.items() if spec.labels == labels and spec.pool})


def _views(plan: Plan, run: str) -> int:
    """Label views that a run waits for."""
    (need,) = plan.needs("evaluate", run)["labels"]
    return need.units


def _optimised(plan: Plan, images: str) -> tuple[str | None, int]:
    """The units that an image set is made from, and how many optimised images it has (of other methods: none)."""
    spec = plan.images[images]
    return (spec.source.units, spec.classes * spec.ipc) if isinstance(spec.source, FromUnits) else (None, 0)
