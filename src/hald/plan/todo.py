"""What a plan still lacks: unfinished units of work, and the Snakemake jobs that they amount to.

Counted apart from the rules' own functions (hald.plan.jobs): `hald plan` and `snakemake -n` are two answers to one
question, and a test compares them. A further rule is a further entry of KINDS.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hald.files import read_json
from hald.plan.arithmetic import views_behind
from hald.plan.model import Plan
from hald.plan.present import Present
from hald.specs.analysis import Subject
from hald.specs.images import FromRanking, FromUnits, Lpld, Patches
from hald.specs.table import Cell, TableSpec


@dataclass(frozen=True)
class Need:
    """The first `count` units that a rule makes under a key (of a table: its id; of weights: their file)."""

    rule: str
    key: str
    count: int = 1


Work = dict[tuple[str, str], set[int]]  # unfinished units by rule and key


@dataclass(frozen=True)
class Kind:
    """The work of one rule. All units of a key lie in one folder."""

    file: Callable[[Plan, str, int], Path]  # where a finished unit is
    needs: Callable[["Todo", str], list[Need]]  # what an unfinished one is made from
    effort: Callable[[Plan, str], tuple[str, float]] | None = None  # kind and amount of one unit; None: never timed
    in_blocks: bool = False  # a job takes several units
    checkpoint: Callable[[Plan, str, int], tuple[Path, int]] | None = None  # its note, and the epochs of a whole unit
    is_right: Callable[["Todo", str, int], bool] = lambda todo, key, unit: True  # of a file that may be out of date


class Todo:
    """What is missing as of one look at the disk."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.present = plan, Present(plan)
        self._missing: dict[Need, frozenset[int]] = {}

    def missing(self, need: Need) -> frozenset[int]:
        """Units of a need that are not there."""
        if need not in self._missing:
            self._missing[need] = frozenset(self._look(need))
        return self._missing[need]

    def _look(self, need: Need) -> Iterator[int]:
        kind, key = KINDS[need.rule], need.key
        there = self.present.names(kind.file(self.plan, key, 0).parent)
        for unit in range(need.count):
            if not there or kind.file(self.plan, key, unit).name not in there or not kind.is_right(self, key, unit):
                yield unit

    def behind(self, needs: Iterable[Need]) -> Work:
        """Everything that has to be made for `needs`: what they lack, what that is made from, and so on."""
        work: Work = {}
        open_needs = list(needs)
        while open_needs:
            need = open_needs.pop()
            units = self.missing(need)
            if units and (need.rule, need.key) not in work:
                open_needs += KINDS[need.rule].needs(self, need.key)
            if units:
                work.setdefault((need.rule, need.key), set()).update(units)
        return work

    def checkpoint(self, rule: str, key: str, unit: int) -> tuple[Path, int] | None:
        """The note of a unit's checkpoint, if there is one, and the epochs of the whole unit."""
        known = KINDS[rule].checkpoint
        found = known(self.plan, key, unit) if known else None
        return found if found and self.present.has(found[0]) else None

    def begun(self, rule: str, key: str, unit: int) -> float:
        """Share of an unfinished unit that its checkpoint has."""
        found = self.checkpoint(rule, key, unit)
        try:
            return min(read_json(found[0])["epoch"] / found[1], 1.0) if found else 0.0
        except FileNotFoundError:  # it has just been finished
            return 0.0


def everything(plan: Plan) -> list[Need]:
    """What the workflow's default target asks for."""
    shown: dict[str, Iterable[str]] = {
        "table": plan.tables,
        "figure": plan.figures,
        "analysis": plan.analyses,
        "preview": plan.images,
    }
    return [Need(rule, name) for rule, names in shown.items() for name in names]


def job_counts(plan: Plan) -> dict[str, int]:
    """Jobs to run for everything, by rule, as Snakemake counts them: with one for the target `all`."""
    counts: Counter[str] = Counter()
    for (rule, key), units in Todo(plan).behind(everything(plan)).items():
        counts[rule] += len(blocks(plan, rule, key, units))
    return {rule: counts[rule] for rule in KINDS if counts[rule]} | ({"all": 1} if counts else {})


def blocks(plan: Plan, rule: str, key: str, units: Iterable[int]) -> set[int]:
    """The jobs that units belong to: aligned blocks, numbered."""
    size = plan.blocks.get(key, 1) if KINDS[rule].in_blocks else 1
    return {unit // size for unit in units}


def views_of(plan: Plan, run: str) -> int:
    """Label views that a run waits for."""
    spec = plan.runs[run]
    return views_behind(spec.pool, plan.labels[spec.labels].batches)


def table_work(plan: Plan, table: TableSpec) -> tuple[dict[str, int], dict[str, int]]:
    """Seeds of each run and views of each label store behind a table, those of its analyses included."""
    runs: dict[str, int] = {}
    views: dict[str, int] = {}
    for cell in table.cells:
        if cell.value is None:
            runs[cell.run] = table.seeds
            continue
        spec = plan.analyses[cell.run]
        for subject in [*spec.subjects, *([spec.reference] if spec.reference else [])]:
            views[subject.labels] = max(views.get(subject.labels, 0), subject_views(subject))
            if subject.run:
                runs.setdefault(subject.run, 1)
    for run in runs:
        labels = plan.runs[run].labels
        views[labels] = max(views.get(labels, 0), views_of(plan, run))
    return runs, views


def subject_views(subject: Subject) -> int:
    """Label views that an analysis reads of a subject's store."""
    ipc, slc = subject.place["ipc"], subject.place.get("slc")
    return math.ceil(slc / ipc) if slc else 1


def cell_need(table: TableSpec, cell: Cell) -> Need:
    """What fills a cell: the records of a run, or an analysis."""
    return Need("evaluate", cell.run, table.seeds) if cell.value is None else Need("analysis", cell.run)


def _data_and(dataset: str, *teachers: str) -> list[Need]:
    return [Need("dataset", dataset), *(Need("squeeze", teacher) for teacher in teachers)]


def _for_squeeze(todo: Todo, key: str) -> list[Need]:
    spec = todo.plan.teachers[key]
    fetched = [Need("weights", f"{spec.arch}/{spec.weights}.safetensors")] if spec.source == "torchvision" else []
    return _data_and(spec.dataset) + fetched


def _for_rank(todo: Todo, key: str) -> list[Need]:
    spec = todo.plan.rankings[key]
    return _data_and(spec.dataset, spec.teacher)


def _for_statistics(todo: Todo, key: str) -> list[Need]:
    spec = todo.plan.statistics[key]
    return _data_and(spec.dataset, spec.teacher)


def _for_recover(todo: Todo, key: str) -> list[Need]:
    spec = todo.plan.units[key]
    first = _data_and(spec.dataset, *spec.teachers)
    if isinstance(spec.own, Lpld):
        return [*first, Need("statistics", spec.own.statistics)]
    return first + ([Need("rank", spec.patches.ranking, spec.classes)] if spec.patches else [])


def _for_synthesize(todo: Todo, key: str) -> list[Need]:
    spec = todo.plan.images[key]
    needs = _data_and(spec.dataset, *spec.teachers)
    if isinstance(spec.source, FromRanking | Patches):
        needs.append(Need("rank", spec.source.ranking, spec.classes))
    if isinstance(spec.source, FromUnits):
        needs.append(Need("recover", spec.source.units, todo.plan.units[spec.source.units].count(spec.ipc)))
    return needs


def _for_relabel(todo: Todo, key: str) -> list[Need]:
    """Nothing once the store exists: it has its images and its teachers in it."""
    if todo.present.has(todo.plan.store_dir(key) / "zarr.json"):
        return []
    spec = todo.plan.labels[key]
    return [Need("synthesize", spec.images), *(Need("squeeze", teacher) for teacher in spec.teachers)]


def _for_evaluate(todo: Todo, key: str) -> list[Need]:
    spec = todo.plan.runs[key]
    return [Need("dataset", spec.dataset), Need("relabel", spec.labels, views_of(todo.plan, key))]


def _for_analysis(todo: Todo, key: str) -> list[Need]:
    """Test pictures, label views, teachers that are asked, and runs whose students are looked at."""
    spec = todo.plan.analyses[key]
    needs = [Need("dataset", spec.dataset)]
    for subject in [*spec.subjects, *([spec.reference] if spec.reference else [])]:
        needs.append(Need("relabel", subject.labels, subject_views(subject)))
        needs += [Need("squeeze", subject.teacher)] if subject.teacher else []
        needs += _student(todo, subject.run) if subject.run else []
    return needs


def _student(todo: Todo, run: str) -> list[Need]:
    """The first student of a run: kept when it is trained, or trained again where only its record is there."""
    trained = Need("evaluate", run, 1)
    return [trained] if todo.missing(trained) else [Need("student", run)]


def _for_table(todo: Todo, name: str) -> list[Need]:
    table = todo.plan.tables[name]
    return [cell_need(table, cell) for cell in table.cells]


def _for_figure(todo: Todo, name: str) -> list[Need]:
    figure = todo.plan.figures[name]
    cells = [cell_need(figure.table, cell) for cell in figure.table.cells] if figure.table else []
    return cells + [Need("analysis", key) for key in figure.analyses]


def _for_preview(todo: Todo, key: str) -> list[Need]:
    """The images, in their set or in a label store of them."""
    plan = todo.plan
    stores = [plan.store_dir(labels) for labels, spec in plan.labels.items() if spec.images == key]
    made = plan.images_dir(key) / "image_set.json"  # the folder alone is what a killed job leaves
    return [] if any(map(todo.present.has, [made, *stores])) else [Need("synthesize", key)]


def _table_is_current(todo: Todo, name: str, _unit: int) -> bool:
    files = [todo.plan.table_file(name, suffix) for suffix in ("csv", "md", "tex", "html")]
    return _is_current(todo, "tables", name, files, _for_table(todo, name))


def _figure_is_current(todo: Todo, name: str, _unit: int) -> bool:
    files = [todo.plan.figure_file(name, suffix) for suffix in ("png", "svg", "pdf")]
    return _is_current(todo, "figures", name, files, _for_figure(todo, name))


def _is_current(todo: Todo, kind: str, name: str, files: list[Path], needs: list[Need]) -> bool:
    """Whether it is there in all formats, means what the plan means by it, and has all it is made from."""
    plan, meaning = todo.plan, todo.plan.meaning_file(kind, name)
    return (
        all(todo.present.has(file) for file in (meaning, *files))
        and read_json(meaning) == plan.meaning(kind, name)
        and not any(todo.missing(need) for need in needs)
    )


def _of_teacher(plan: Plan, key: str, _unit: int) -> tuple[Path, int]:
    recipe = plan.teachers[key].recipe
    return plan.partial(key) / "checkpoint.json", recipe.epochs if recipe else 1


def _of_student(plan: Plan, key: str, seed: int) -> tuple[Path, int]:
    return plan.partial(key) / f"seed-{seed}" / "checkpoint.json", plan.runs[key].epochs


KINDS: dict[str, Kind] = {
    "dataset": Kind(lambda plan, key, _: plan.dataset_dir(key) / "manifest.json", lambda todo, key: []),
    "weights": Kind(lambda plan, key, _: Path(plan.results, "weights", key), lambda todo, key: []),
    "squeeze": Kind(
        lambda plan, key, _: plan.teacher_dir(key) / "teacher.json",
        _for_squeeze,
        lambda plan, key: plan.teachers[key].effort,
        checkpoint=_of_teacher,
    ),
    "rank": Kind(Plan.unit, _for_rank, lambda plan, key: plan.rankings[key].effort, in_blocks=True),
    "statistics": Kind(
        lambda plan, key, _: plan.statistics_dir(key) / "statistics.json",
        _for_statistics,
        lambda plan, key: plan.statistics[key].effort,
    ),
    "recover": Kind(Plan.unit, _for_recover, lambda plan, key: plan.units[key].effort, in_blocks=True),
    "synthesize": Kind(
        lambda plan, key, _: plan.images_dir(key) / "image_set.json",
        _for_synthesize,
        lambda plan, key: plan.images[key].effort,
    ),
    "relabel": Kind(Plan.marker, _for_relabel, lambda plan, key: plan.labels[key].effort, in_blocks=True),
    "evaluate": Kind(
        Plan.record,
        _for_evaluate,
        lambda plan, key: plan.runs[key].effort,
        in_blocks=True,
        checkpoint=_of_student,
    ),
    "student": Kind(
        lambda plan, key, _: plan.kept_student(key),
        _for_evaluate,
        lambda plan, key: plan.runs[key].effort,
        checkpoint=_of_student,
    ),
    "analysis": Kind(
        lambda plan, key, _: plan.analysis_file(key),
        _for_analysis,
        lambda plan, key: (f"analysis {plan.analyses[key].kind}", 1),
    ),
    "table": Kind(lambda plan, key, _: plan.table_file(key, "csv"), _for_table, is_right=_table_is_current),
    "figure": Kind(lambda plan, key, _: plan.figure_file(key, "png"), _for_figure, is_right=_figure_is_current),
    "preview": Kind(lambda plan, key, _: plan.preview_file(key), _for_preview),
}
