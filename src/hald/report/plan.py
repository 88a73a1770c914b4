"""What an experiment shows: its tables, analyses and figures, resolved into specs."""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from hald.analysis.settings import Analysis
from hald.analysis.spec import AnalysisSpec, Subject
from hald.errors import UserError, suggest
from hald.evaluation.spec import RunSpec
from hald.plain import to_dict
from hald.report.grids import PLACE, Place, places
from hald.report.settings import Figure, Table
from hald.report.spec import Cell, FigureSpec, TableSpec

if TYPE_CHECKING:
    from hald.plan.planning import Builder

V = TypeVar("V")


def _and(names: Place) -> str:
    return " and ".join(f"{name} {value}" for name, value in names.items())


STUDIED = ("crop_consistency", "reference_consistency", "teacher_consistency", "landscape", "embedding", "theory")
OPTIONS = ("samples", "crops", "epochs", "resolution", "plane", "seed")  # go into its spec as they are
TRAINED_ANEW = ("gradients", "updates")  # kinds that train students of their own
FROM_TABLES = ("accuracy_over_slc", "accuracy_over_bytes", "accuracy_over_steps", "gain", "learning_curves")


@dataclass(frozen=True)
class Outcomes:
    """Resolves the tables, analyses and figures of one experiment."""

    b: "Builder"

    def add_all(self) -> None:
        """Put them into the plan."""
        ex, plan = self.b.experiment, self.b.plan
        analyses = {name: self.analysis(name, settings) for name, settings in ex.analyses.items()}
        for name in (*ex.tables, *ex.figures):
            if not re.fullmatch(r"[\w-]+", name):
                raise UserError(f"table or figure id '{name}' becomes a file name: use letters, digits, - and _ only")
        made: dict[str, TableSpec] = {}
        for name, table in ex.tables.items():
            made[name] = self.analysis_table(name, table, analyses) if table.analysis else self.table(name, table)
            plan.specs["table"][name] = joined(plan.tables[name], made[name]) if name in plan.tables else made[name]
        for name, figure in ex.figures.items():
            spec = self.figure(name, figure, made, analyses)
            if plan.specs["figure"].setdefault(name, spec) != spec:
                raise UserError(f"{self.b.where}: another experiment has a figure '{name}' too; rename one of them")

    def table(self, table_id: str, table: Table) -> TableSpec:
        """A table of accuracies; it asks for the runs of its cells."""
        cells = []
        for place in places(table, self.b.experiment.dataset, f"{self.b.where}: table '{table_id}'"):
            key = self.b.run(**{name: place[name] for name in ("images", "ipc", "slc", "student", "evaluation")})
            cells.append(self._cell(table_id, table, place, key))
        return self._table(table_id, table, cells)

    def _cell(
        self, table_id: str, table: Table, place: Place, key: str, subject: int = 0, value: str | None = None
    ) -> Cell:
        row, column = (tuple(str(place[name]) for name in names) for names in (table.rows, table.columns))
        stands_for = self._published(place)
        printed = self.b.paper.printed(table.published_as or table_id, place | stands_for)
        if printed and stands_for:
            printed = replace(printed, notes=(*printed.notes, f"the paper's number is that of {_and(stands_for)}"))
        return Cell(row, column, key, printed, place, subject, value)

    def _published(self, place: Place) -> Place:
        """Names of a cell's dataset and student in the paper, where they go by another."""
        student = self.b.experiment.students.get(place["student"] or "")
        known = {"dataset": self.b.settings().published_as, "student": student and student.published_as}
        return {name: value for name, value in known.items() if value}

    def _table(self, table_id: str, table: Table, cells: list[Cell]) -> TableSpec:
        number = self.b.paper.numbers.get(table.published_as or table_id)
        return TableSpec(table_id, table.caption, table.rows, table.columns, table.seeds, tuple(cells), number)

    def analysis_table(self, table_id: str, table: Table, analyses: Mapping[str, str]) -> TableSpec:
        """A table of numbers that an analysis found about its subjects."""
        assert table.analysis is not None
        key = self._known(analyses, table.analysis, f"table '{table_id}'", "analysis")
        cells = []
        for number, subject in enumerate(self.b.plan.analyses[key].subjects):
            for metric, path in table.values.items():
                place = dict.fromkeys(PLACE) | subject.place | {"metric": metric, "label": metric}
                missing = next((name for name in table.rows + table.columns if name not in place), None)
                if missing:
                    raise UserError(f"{self.b.where}: table '{table_id}' shows '{missing}'. {suggest(missing, place)}")
                cells.append(self._cell(table_id, table, place, key, number, path))
        return self._table(table_id, table.model_copy(update={"seeds": 1}), cells)

    def analysis(self, name: str, settings: Analysis) -> str:
        """An analysis and everything that it looks at."""
        reference = None
        if settings.kind == "reference_consistency":
            if not settings.reference or not settings.reference_slc:
                raise self._error(name, "needs `reference` (an evaluation) and `reference_slc`")
            reference = self._trained(
                settings, settings.images[0], settings.ipc[0], settings.reference_slc, settings.reference
            )[-1]
        if settings.kind == "landscape" and len(settings.evaluations) != 2:
            raise self._error(name, f"compares two evaluations, found {len(settings.evaluations)}")
        if settings.resolution % 2 == 0:
            raise self._error(name, f"has resolution {settings.resolution}, which has no middle; take an odd number")
        subjects = tuple(
            itertools.chain.from_iterable(
                self._subjects(name, settings, images, ipc) for images in settings.images for ipc in settings.ipc
            )
        )
        if not subjects:
            raise self._error(name, "finds nothing to look at: none of its evaluations has a hard stage")
        options = {field: getattr(settings, field) for field in OPTIONS}
        dataset = self.b.settings()
        options |= {"mean": dataset.mean, "std": dataset.std, "flip": dataset.augment.flip, "central": self._central()}
        if settings.kind in TRAINED_ANEW:
            runs = [self._run_spec(subject) for subject in subjects]
            if settings.kind == "updates" and any(run.adaptive or len(run.stages) < 2 for run in runs):
                raise self._error(
                    name, "compares stages of fixed length: leave out adaptive schedules and single stages"
                )
            options["runs"] = [to_dict(run) for run in runs]
        ex = self.b.experiment
        spec = AnalysisSpec(settings.kind, self.b.dataset(), subjects, reference, options, ex.threads)
        key = self.b.add("analysis", spec, f"{ex.dataset}/{name}")
        self.b.plan.names[key] = name
        return key

    def _run_spec(self, subject: Subject) -> RunSpec:
        """The training that an analysis does itself."""
        place = subject.place
        evaluation = place.get("evaluation", "soft_only")
        return self.b.run_spec(place["images"], place["ipc"], place["slc"], place["student"], evaluation)

    def _central(self) -> float:
        """Share of the shorter side that the evaluation's centre crop keeps."""
        dataset = self.b.settings()
        return dataset.size / dataset.resize if dataset.resize else 1.0

    def _subjects(self, name: str, settings: Analysis, images: str, ipc: int) -> Iterator[Subject]:
        slc = settings.slc or ipc
        if settings.kind in STUDIED:
            for evaluation in settings.evaluations:
                yield from chosen(settings.kind, self._trained(settings, images, ipc, slc, evaluation))
            return
        labels = self.b.labels(images, ipc)
        ex = self.b.experiment
        place = {"dataset": ex.dataset, "images": images, "ipc": ipc, "slc": slc, "student": self._student(settings)}
        if settings.kind == "lvsd":
            for teacher in settings.teachers or (ex.teacher,):
                asked = {"evaluation": "lvsd", "student": teacher, "slc": None}
                yield Subject(place | asked, labels, teacher=self.b.teacher(teacher))
        elif settings.kind == "updates":
            yield from (Subject(place | {"evaluation": name}, labels) for name in settings.evaluations)
        elif settings.kind == "storage":
            yield Subject({"dataset": ex.dataset, "ipc": ipc}, labels)
        else:
            yield Subject(place, labels)

    def _student(self, settings: Analysis) -> str:
        return settings.student or next(iter(self.b.experiment.students))

    def _trained(self, settings: Analysis, images: str, ipc: int, slc: int, evaluation: str) -> list[Subject]:
        """The student of a run after each of its stages; its weights will be kept."""
        student, plan = self._student(settings), self.b.plan
        run = self.b.run(images, ipc, slc, student, evaluation)
        plan.kept[run] = 1
        labels = self.b.labels(images, ipc)
        place = {"dataset": self.b.experiment.dataset, "images": images, "ipc": ipc, "slc": slc, "student": student}
        return [
            Subject(place | {"evaluation": evaluation, "stage": stage.kind}, labels, run, number)
            for number, stage in enumerate(plan.runs[run].stages)
        ]

    def figure(
        self, name: str, figure: Figure, tables: Mapping[str, TableSpec], analyses: Mapping[str, str]
    ) -> FigureSpec:
        """A figure of a table's cells or of analyses."""
        where = f"figure '{name}'"
        if (figure.kind in FROM_TABLES) != bool(figure.table) or bool(figure.table) == bool(figure.analyses):
            raise UserError(
                f"{self.b.where}: {where} of kind {figure.kind} needs "
                + ("`table`, and no `analyses`" if figure.kind in FROM_TABLES else "`analyses`, and no `table`")
            )
        table = None
        if figure.table:
            table = self._known(tables, figure.table, where, "table")
            cells = tuple(cell for cell in table.cells if _fits(cell.place, figure.where))
            if not cells:
                raise UserError(f"{self.b.where}: {where} has no cell of table '{figure.table}' with {figure.where}")
            table = replace(table, cells=cells)
        keys = tuple(self._known(analyses, analysis, where, "analysis") for analysis in figure.analyses)
        return FigureSpec(name, figure.kind, figure.caption, table, keys)

    def _known(self, known: Mapping[str, V], name: str, where: str, what: str) -> V:
        if name not in known:
            raise UserError(f"{self.b.where}: {where}: there is no {what} '{name}'. {suggest(name, known)}")
        return known[name]

    def _error(self, name: str, what: str) -> UserError:
        return UserError(f"{self.b.where}: analysis '{name}' {what}")


def chosen(kind: str, stages: list[Subject]) -> list[Subject]:
    """The stages of a training that an analysis looks at, with the names that the paper has for them."""
    if kind == "crop_consistency":
        hard = next((i for i, subject in enumerate(stages) if i and subject.place["stage"] == "hard"), None)
        if hard is None:
            return []
        return [_renamed(stages[hard - 1], stage="before_stage_B"), _renamed(stages[hard], stage="after_stage_B")]
    if kind == "teacher_consistency" and len(stages) > 1:
        before = f"{stages[0].place['evaluation']}_before_last_soft"
        return [_renamed(stages[-2], stage=None, evaluation=before), _renamed(stages[-1], stage=None)]
    return [_renamed(stages[-1], stage=None)]


def _renamed(subject: Subject, **fields: Any) -> Subject:
    return replace(subject, place=subject.place | fields)


def _fits(place: Place, where: Mapping[str, str]) -> bool:
    return all(str(place.get(name)) == value for name, value in where.items())


def joined(table: TableSpec, more: TableSpec) -> TableSpec:
    """One table of two experiments' cells."""
    for name in ("caption", "rows", "columns", "seeds"):
        if getattr(table, name) != getattr(more, name):
            raise UserError(
                f"table '{table.id}' is defined by two experiments, with {name} {getattr(table, name)!r} and "
                f"{getattr(more, name)!r}: make them the same, or rename one"
            )
    taken = {(cell.row, cell.column): cell.run for cell in table.cells}
    new = [cell for cell in more.cells if (cell.row, cell.column) not in taken]
    if any(taken.get((cell.row, cell.column), cell.run) != cell.run for cell in more.cells):
        raise UserError(
            f"table '{table.id}' is defined by two experiments that put different runs into one cell; add `dataset` to "
            f"its rows, or rename one of the tables"
        )
    return replace(table, cells=table.cells + tuple(new))
