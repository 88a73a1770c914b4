"""Settings -> specs with keys. A pure function: no torch, no Snakemake, no look at what exists already."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from hald.errors import UserError
from hald.files import file_digest
from hald.plan.config import expand, suggest
from hald.plan.model import Plan
from hald.plan.settings import Config, Experiment
from hald.provenance import key_of
from hald.specs.dataset import DatasetSpec
from hald.specs.images import Images, ImagesSpec
from hald.specs.labels import LabelsSpec
from hald.specs.run import Evaluation, RunSpec, Stage
from hald.specs.table import Cell, Table, TableSpec
from hald.specs.teacher import TeacherSpec

V = TypeVar("V")


def build(config: Config, experiments: Mapping[str, Experiment], code: Mapping[str, str]) -> Plan:
    """The plan of all experiments together; the same work asked for twice is in it once."""
    plan = Plan(results=config.results, stores=config.stores, jobs=config.jobs, code=dict(code))
    for name, experiment in experiments.items():
        builder = _Builder(plan, config, experiment, f"experiment '{name}'")
        for table_id, table in experiment.tables.items():
            if table_id in plan.tables:
                raise UserError(
                    f"table '{table_id}' is defined by two of the experiments {list(experiments)}; rename one"
                )
            plan.tables[table_id] = builder.table(table_id, table)
    return plan


def stages_of(evaluation: Evaluation, slc: int) -> tuple[Stage, ...]:
    """The stages of an evaluation at one SLC. Soft-hard-soft: [soft // 2, hard, soft - soft // 2] (paper)."""
    hard = _at_slc(evaluation.hard_epochs, slc)
    kinds = evaluation.order.split("-")
    if "hard" not in kinds and hard:
        raise UserError(f"order '{evaluation.order}' has no hard stage, but hard_epochs is {hard}")
    if "soft" not in kinds:
        hard = evaluation.epochs
    soft = evaluation.epochs - hard
    if soft < 0 or ("hard" in kinds and hard == 0 and "soft" not in kinds):
        raise UserError(f"hard_epochs is {hard} at SLC {slc}, but there are only {evaluation.epochs} epochs in all")
    budget = {"soft": soft, "hard": hard}
    left = dict(budget)
    stages = []
    for i, kind in enumerate(kinds):
        epochs = left[kind] if kind not in kinds[i + 1 :] else budget[kind] // 2
        left[kind] -= epochs
        stages.append(Stage(kind, epochs))
    return tuple(stage for stage in stages if stage.epochs)


def _at_slc(value: int | dict[int, int], slc: int) -> int:
    """A setting that may depend on the SLC: the entry at or below it, or the lowest one."""
    if isinstance(value, int):
        return value
    if not value:
        raise UserError("a map from SLC to epochs needs at least one entry, e.g. {10: 150}")
    return value[max((known for known in value if known <= slc), default=min(value))]


def pool_size(labels: LabelsSpec, ipc: int, slc: int, rounding: str) -> int:
    """Stored batches that an SLC amounts to: whole views, then whole batches of one more view (or none: `floor`)."""
    views, rest = divmod(slc, ipc)
    more = 0 if rounding == "floor" else rest * labels.classes // labels.batch
    pool = views * labels.batches + more
    if pool == 0:
        raise UserError(
            f"SLC {slc} at IPC {ipc} leaves no whole batch of labels (batch {labels.batch}, {labels.classes} classes); "
            f"ask for SLC >= {ipc}" + (" or slc_rounding: batches" if rounding == "floor" else "")
        )
    return pool


@dataclass(frozen=True)
class _Builder:
    """Resolves one experiment into `plan`."""

    plan: Plan
    config: Config
    experiment: Experiment
    where: str

    def table(self, table_id: str, table: Table) -> TableSpec:
        fields = {"images": table.images, "ipc": table.ipc, "slc": table.slc, "student": table.students}
        fields["evaluation"] = table.evaluations
        self._check_fields(table_id, table, fields)
        cells = []
        for values in itertools.product(*fields.values()):
            cell: dict[str, Any] = dict(zip(fields, values, strict=True))
            key = self.run(**cell)
            self.plan.seeds[key] = max(self.plan.seeds.get(key, 0), table.seeds)
            row, column = ([str(cell[name]) for name in names] for names in (table.rows, table.columns))
            cells.append(Cell(tuple(row), tuple(column), key))
        return TableSpec(table_id, table.caption, table.rows, table.columns, table.seeds, tuple(cells))

    def _check_fields(self, table_id: str, table: Table, fields: Mapping[str, tuple[Any, ...]]) -> None:
        shown = table.rows + table.columns
        for name in shown:
            if name not in fields:
                raise UserError(f"{self.where}: table '{table_id}' shows '{name}'. {suggest(name, fields)}")
        for name, values in fields.items():
            if name not in shown and len(values) > 1:
                raise UserError(
                    f"{self.where}: table '{table_id}' has {len(values)} values of '{name}' but shows it neither in "
                    f"rows nor in columns; add it to one of them"
                )

    def run(self, images: str, ipc: int, slc: int, student: str, evaluation: str) -> str:
        ex, dataset = self.experiment, self._settings()
        protocol = self._get(ex.evaluations, evaluation, "evaluation")
        net = self._get(ex.students, student, "student")
        labels_key = self.labels(images, ipc)
        labels = self.plan.labels[labels_key]
        pool = pool_size(labels, ipc, slc, protocol.slc_rounding)
        views = -(-pool // labels.batches)
        self.plan.views[labels_key] = max(self.plan.views.get(labels_key, 0), views)
        shared = {name: getattr(protocol, name) for name in _PROTOCOL}
        spec = RunSpec(
            dataset=self.dataset(),
            labels=labels_key,
            arch=net.arch,
            ipc=ipc,
            slc=slc,
            pool=pool,
            batch=labels.batch,
            classes=dataset.classes,
            size=dataset.size,
            mean=dataset.mean,
            std=dataset.std,
            scale=dataset.augment.scale,
            ratio=dataset.augment.ratio,
            flip=dataset.augment.flip,
            stages=stages_of(protocol, slc),
            lr=net.lr or protocol.lr,
            threads=ex.threads,
            **shared,
        )
        stages = "-".join(f"{stage.kind}{stage.epochs}" for stage in spec.stages)
        method = self.plan.images[labels.images].method
        slug = f"{ex.dataset}/{method}-ipc{ipc}-slc{slc}-{stages}-{_short(net.arch)}"
        return self._add(self.plan.runs, "evaluate", spec, slug)

    def labels(self, images: str, ipc: int) -> str:
        ex, dataset = self.experiment, self._settings()
        images_key = self.images(images, ipc)
        teacher_key = self.teacher(ex.labels.teacher or ex.teacher)
        method = ex.images[images]
        spec = LabelsSpec(
            images=images_key,
            teacher=teacher_key,
            arch=self.plan.teachers[teacher_key].arch,
            classes=dataset.classes,
            count=dataset.classes * ipc,
            size=dataset.size,
            batch=ex.labels.batch,
            mix=ex.labels.mix,
            mix_alpha=ex.labels.mix_alpha,
            scale=dataset.augment.scale,
            ratio=dataset.augment.ratio,
            flip=dataset.augment.flip,
            bn_mode=method.bn_mode or BN_MODE[method.method],
            codec=ex.labels.codec,
            seed=ex.labels.seed,
            threads=ex.threads,
        )
        arch = _short(self.plan.teachers[teacher_key].arch)
        return self._add(self.plan.labels, "relabel", spec, f"{ex.dataset}/{method.method}-ipc{ipc}-{arch}")

    def images(self, name: str, ipc: int) -> str:
        ex, dataset = self.experiment, self._settings()
        method: Images = self._get(ex.images, name, "image set")
        spec = ImagesSpec(
            method=method.method,
            dataset=self.dataset(),
            teacher=self.teacher(method.teacher or ex.teacher) if method.method != "real" else None,
            ipc=ipc,
            size=dataset.size,
            resize=dataset.resize,
            mipc=method.mipc,
            num_crop=method.num_crop,
            factor=method.factor,
            crop_scale=method.crop_scale,
            seed=method.seed,
            threads=ex.threads,
        )
        key = self._add(self.plan.images, f"synthesis.{method.method}", spec, f"{ex.dataset}/{method.method}-ipc{ipc}")
        source = self.plan.datasets[spec.dataset]
        self.plan.datasets[spec.dataset] = replace(source, per_class=max(source.per_class, spec.per_class))
        return key

    def teacher(self, name: str) -> str:
        ex, dataset = self.experiment, self._settings()
        teacher = self._get(ex.teachers, name, "teacher")
        path = expand(teacher.path)
        if (teacher.source == "path") != (path is not None):
            raise UserError(
                f"{self.where}: teacher '{name}' has source {teacher.source} and path {path}; give both or neither"
            )
        spec = TeacherSpec(
            dataset=self.dataset(),
            arch=teacher.arch,
            source=teacher.source,
            weights=teacher.weights,
            path=path,
            digest=_digest_if_there(path),
            recipe=teacher.recipe,
            mean=teacher.mean or dataset.mean,
            std=teacher.std or dataset.std,
            scale=dataset.augment.scale,
            ratio=dataset.augment.ratio,
            flip=dataset.augment.flip,
            size=dataset.size,
            classes=dataset.classes,
            seed=teacher.seed,
            threads=ex.threads,
        )
        key = self._add(self.plan.teachers, "squeeze", spec, f"{ex.dataset}/{_short(teacher.arch)}")
        self.plan.floors[key] = dataset.floor
        return key

    def dataset(self) -> str:
        name, settings = self.experiment.dataset, self._settings()
        spec = DatasetSpec(
            name=name,
            source=settings.source,
            variant=settings.variant,
            train=settings.train,
            test=settings.test,
            subset=settings.subset,
            classes=settings.classes,
            size=settings.size,
            resize=settings.resize,
            root=expand(settings.root),
            download=settings.download,
            per_class=0,
        )
        return self._add(self.plan.datasets, "dataset", spec, name)

    def _settings(self) -> Any:
        return self._get(self.config.datasets, self.experiment.dataset, "dataset")

    def _get(self, known: Mapping[str, V], name: str, what: str) -> V:
        if name not in known:
            raise UserError(f"{self.where}: there is no {what} '{name}'. {suggest(name, known)}")
        return known[name]

    def _add(self, specs: dict[str, Any], stage: str, spec: Any, slug: str) -> str:
        key = key_of(stage, spec, self.plan.code[stage])
        specs.setdefault(key, spec)
        self.plan.slugs[key] = f"{slug}_{key}"
        return key


BN_MODE = {"rded": "running", "real": "running"}
_PROTOCOL = ("eta", "weight_decay", "temperature", "kd_scale", "handover", "smoothing", "sampling")


def _short(arch: str) -> str:
    """Architecture name without its family, fit for a path."""
    return arch.rsplit("/", 1)[-1].replace(".", "-")


def _digest_if_there(path: str | None) -> str | None:
    file = Path(path) if path else None
    return file_digest(file) if file and file.is_file() else None


def missing_blocks(done: Iterable[bool], size: int) -> list[int]:
    """Units 0, 1, ... in aligned blocks of `size`: for every block with undone units, the last of them.

    A job that is given this unit does all undone units of its block, so blocks never overlap and a killed job's
    successor finds its way without a list.
    """
    last: dict[int, int] = {}
    for unit, finished in enumerate(done):
        if not finished:
            last[unit // size] = unit
    return sorted(last.values())
