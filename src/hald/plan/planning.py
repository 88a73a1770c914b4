"""Settings -> specs with keys. A pure function: no torch, no Snakemake, no look at what exists already."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hald.config.paper import PaperTables
from hald.config.published import Published
from hald.config.read import expand
from hald.config.settings import Config, Experiment
from hald.datasets.settings import Dataset, TorchvisionDataset
from hald.datasets.spec import DatasetSpec
from hald.errors import UserError, suggest
from hald.evaluation.protocol import Where, protocol, uses_labels
from hald.evaluation.spec import RunSpec
from hald.files import file_digest
from hald.keys import key_of
from hald.labels.spec import LabelsSpec
from hald.plan.arithmetic import (
    check_batches,
    check_confidence,
    check_top_k,
    kept_logits,
    pool_size,
    second_moment,
    views_behind,
)
from hald.plan.model import Code, Plan
from hald.plan.stages import STAGES
from hald.report.plan import Outcomes
from hald.squeeze.spec import TeacherSpec, WeightsSpec
from hald.synthesis.plan import ImagesBuilder

V = TypeVar("V")


def build(
    config: Config,
    experiments: Mapping[str, Experiment],
    code: Code,
    published: Published,
    paper: PaperTables,
) -> Plan:
    """The plan of all experiments together; the same work asked for twice is in it once."""
    plan = Plan(results=expand(config.results), stores=expand(config.stores), jobs=config.jobs, code=code)
    for name, experiment in experiments.items():
        builder = Builder(plan, config, experiment, published, paper, f"experiment '{name}'")
        Outcomes(builder).add_all()
    return plan


def _once(method: Callable[..., str]) -> Callable[..., str]:
    """Remember a builder method's answer for each set of arguments: thousands of cells share a few teachers."""

    @functools.wraps(method)
    def remembered(self: "Builder", *arguments: Any) -> str:
        known = (method.__name__, *arguments)
        if known not in self.memo:
            self.memo[known] = method(self, *arguments)
        return self.memo[known]

    return remembered


@dataclass(frozen=True)
class Builder:
    """Resolves one experiment into `plan`."""

    plan: Plan
    config: Config
    experiment: Experiment
    published: Published
    paper: PaperTables
    where: str
    memo: dict[Any, str] = field(default_factory=dict)

    def run(self, images: str, ipc: int, slc: int, student: str, evaluation: str) -> str:
        """A training, added; its key, as of all that follows."""
        spec = self.run_spec(images, ipc, slc, student, evaluation)
        method = self.plan.images[self.plan.labels[spec.labels].images].method
        slug = f"{self.experiment.dataset}/{method}-ipc{ipc}-slc{spec.slc:g}-{_course(spec)}-{short(spec.arch)}"
        return self.add("evaluate", spec, slug)

    def run_spec(self, images: str, ipc: int, slc: int, student: str, evaluation: str) -> RunSpec:
        """A training; its labels are in the plan, it itself is not yet."""
        ex, dataset = self.experiment, self.settings()
        settings = self._get(ex.evaluations, evaluation, "evaluation")
        net = self._get(ex.students, student, "student")
        self._require_published(net.published_as, self.published.networks, f"student '{student}'")
        self._require_published(dataset.published_as, self.published.datasets, f"dataset '{ex.dataset}'")
        labels_key = self.labels(images, ipc)
        labels = self.plan.labels[labels_key]
        check_top_k(settings, labels, f"{self.where}: evaluation '{evaluation}'")
        if net.lr is not None and settings.lr is None:
            settings = settings.model_copy(update={"lr": net.lr})
        rounding = settings.slc_rounding or ex.slc_rounding
        per_image = pool_size(labels, ipc, slc, rounding) / labels.batches if settings.label_uses else slc / ipc
        where = Where(dataset.published_as or ex.dataset, net.published_as or net.arch, ipc, slc, per_image)
        try:
            decided = protocol(settings, ex.epochs, where, self.published)
        except UserError as error:
            raise UserError(f"{self.where}: evaluation '{evaluation}' at SLC {slc}: {error}") from None
        if decided["hard_temperature"] is None:
            check_confidence(decided["smoothing"], decided["top_k"], labels, f"{self.where}: evaluation '{evaluation}'")
        pool = pool_size(labels, ipc, slc, rounding) if uses_labels(decided) else 0
        views = views_behind(pool, labels.batches)
        if views > MAX_VIEWS:
            raise UserError(f"{self.where}: SLC {slc} needs {views} label views, a store holds {MAX_VIEWS} at most")
        steps = decided["epochs"] * labels.batches
        return RunSpec(
            dataset=self.dataset(),
            labels=labels_key,
            arch=self._arch(net.arch),
            ipc=ipc,
            pool=pool,
            batch=labels.batch,
            classes=dataset.classes,
            size=dataset.size,
            mean=dataset.mean,
            std=dataset.std,
            scale=dataset.augment.scale,
            ratio=dataset.augment.ratio,
            flip=dataset.augment.flip,
            beta2=second_moment(ex.beta2 if settings.beta2 is None else settings.beta2, steps),
            measure_every=settings.measure_every or ex.measure_every,
            threads=ex.threads,
            **decided,
        )

    @_once
    def labels(self, images: str, ipc: int) -> str:
        """Labels of an image set."""
        ex, dataset = self.experiment, self.settings()
        images_key = self.images(images, ipc)
        names = ex.labels.teachers or (ex.teacher,)
        teachers = tuple(self.teacher(name) for name in names)
        weights = ex.labels.weights or (1 / len(names),) * len(names)
        if len(weights) != len(names):
            raise UserError(
                f"{self.where}: labels has {len(names)} teachers and {len(weights)} weights; give one for each"
            )
        arch = "+".join(short(self.plan.teachers[key].arch) for key in teachers)
        method = ex.images[images]
        check_batches(dataset.classes * ipc, ex.labels.batch, self.where)
        bn_mode = method.bn_mode or method.USUAL_BN_MODE
        if bn_mode is None:
            raise UserError(
                f"{self.where}: image set '{images}' was made elsewhere, so say which BN statistics label it: "
                f"`bn_mode: batch` (as the released code has it for all images but RDED's) or `bn_mode: running`"
            )
        stored = ex.labels
        if method.codec or method.top_k:
            stored = stored.model_copy(update={"codec": method.codec or stored.codec, "top_k": method.top_k})
        spec = LabelsSpec(
            images=images_key,
            teachers=teachers,
            weights=weights,
            arch=arch,
            classes=dataset.classes,
            count=dataset.classes * ipc,
            size=dataset.size,
            batch=ex.labels.batch,
            mix=ex.labels.mix,
            mix_alpha=ex.labels.mix_alpha,
            scale=dataset.augment.scale,
            ratio=dataset.augment.ratio,
            flip=dataset.augment.flip,
            bn_mode=bn_mode,
            codec=stored.codec,
            top_k=kept_logits(stored, dataset.classes, self.where),
            seed=ex.labels.seed,
            threads=ex.threads,
        )
        return self.add("relabel", spec, f"{ex.dataset}/{method.method}-ipc{ipc}-{arch}")

    @_once
    def images(self, name: str, ipc: int) -> str:
        """An image set."""
        return ImagesBuilder(self, self._get(self.experiment.images, name, "image set"), name, ipc).build()

    @_once
    def teacher(self, name: str) -> str:
        """A teacher."""
        ex, dataset = self.experiment, self.settings()
        teacher = self._get(ex.teachers, name, "teacher")
        path = teacher.path and expand(teacher.path)
        if (teacher.source == "path") != (path is not None):
            raise UserError(
                f"{self.where}: teacher '{name}' has source {teacher.source} and path {path}; give both or neither"
            )
        trained = teacher.source == "train"
        if trained and teacher.recipe.crop == "padded" and dataset.resize is not None:
            raise UserError(
                f"{self.where}: teacher '{name}' has recipe crop: padded, which needs images of the input size, but "
                f"the dataset is resized; set `crop: resized`"
            )
        if teacher.source == "torchvision" and dataset.classes != 1000:
            raise UserError(
                f"{self.where}: teacher '{name}' takes torchvision's weights for ImageNet-1K's 1000 classes, the "
                f"dataset has {dataset.classes}; use `source: train` or `source: path`"
            )
        if teacher.source == "torchvision" and not teacher.arch.startswith("torchvision/"):
            raise UserError(
                f"{self.where}: teacher '{name}' takes torchvision's weights, but its arch is '{teacher.arch}'"
            )
        spec = TeacherSpec(
            dataset=self.dataset(),
            arch=self._arch(teacher.arch),
            source=teacher.source,
            weights=teacher.weights if teacher.source == "torchvision" else None,
            path=path,
            digest=_digest_if_there(path),
            recipe=teacher.recipe if trained else None,
            mean=teacher.mean or dataset.mean,
            std=teacher.std or dataset.std,
            scale=dataset.augment.scale,
            ratio=dataset.augment.ratio,
            flip=dataset.augment.flip,
            size=dataset.size,
            classes=dataset.classes,
            seed=teacher.seed if trained else 0,
            threads=ex.threads,
        )
        key = self.add("squeeze", spec, f"{ex.dataset}/{short(teacher.arch)}")
        if spec.weights:
            weights = WeightsSpec(spec.arch, spec.weights)
            self.plan.specs["weights"].setdefault(weights.name, weights)
        self.plan.floors[key], self.plan.names[key] = dataset.floor, name
        return key

    @_once
    def dataset(self) -> str:
        """The dataset."""
        name, settings = self.experiment.dataset, self.settings()
        for what, (low, high) in (("scale", settings.augment.scale), ("ratio", settings.augment.ratio)):
            if low > high:
                raise UserError(
                    f"dataset '{name}': augment {what} is [{low:g}, {high:g}]; write the smaller value first"
                )
        if isinstance(settings.subset, int) and settings.subset != settings.classes:
            raise UserError(
                f"dataset '{name}': subset is {settings.subset}, so `classes` must be too, found {settings.classes}"
            )
        if settings.resize is not None and settings.source in FIXED_SIZE:
            raise UserError(f"dataset '{name}': source {settings.source} has images of one size; leave `resize` empty")
        if settings.resize is not None and settings.resize < settings.size:
            raise UserError(f"dataset '{name}': resize ({settings.resize}) is smaller than size ({settings.size})")
        fetched = settings if isinstance(settings, TorchvisionDataset) else None
        spec = DatasetSpec(
            name=name,
            source=settings.source,
            variant=fetched.variant if fetched else None,
            train=settings.train,
            test=settings.test,
            subset=settings.subset,
            classes=settings.classes,
            size=settings.size,
            resize=settings.resize,
            root=settings.root and expand(settings.root),
            download=fetched.download if fetched else False,
            per_class=0,
        )
        return self.add("dataset", spec, name)

    def _arch(self, arch: str) -> str:
        """A network name whose family exists (the name itself is looked up where torch is at hand)."""
        if arch.partition("/")[0] not in FAMILIES or not arch.partition("/")[2]:
            known = ", ".join(f"{family}/<name>" for family in FAMILIES)
            raise UserError(f"{self.where}: unknown network '{arch}'; write one of {known}")
        return arch

    def settings(self) -> Dataset:
        """The experiment's dataset as the config has it."""
        return self._get(self.config.datasets, self.experiment.dataset, "dataset")

    def _require_published(self, name: str | None, known: Sequence[str], what: str) -> None:
        if name is not None and name not in known:
            raise UserError(f"{self.where}: {what} has published_as '{name}'. {suggest(name, known)}")

    def _get(self, known: Mapping[str, V], name: str, what: str) -> V:
        if name not in known:
            raise UserError(f"{self.where}: there is no {what} '{name}'. {suggest(name, known)}")
        return known[name]

    def add(self, stage: str, spec: Any, slug: str) -> str:
        """Put a piece of work into the plan, unless it is there; its key."""
        key = key_of(stage, spec, self.plan.code.name(STAGES[stage].parts(spec)))
        self.plan.specs[stage].setdefault(key, spec)
        self.plan.slugs[key] = f"{slug}_{key}"
        return key


FAMILIES = ("small", "sre2l", "torchvision", "timm")
MAX_VIEWS = 65536  # length of a store's arrays; hald.labels.layout has the same
FIXED_SIZE = ("sklearn_digits", "torchvision")


def short(arch: str) -> str:
    """Architecture name without its family, fit for a path."""
    return arch.rsplit("/", 1)[-1].replace(".", "-")


def _course(spec: RunSpec) -> str:
    """Stages and loss in short: a function of the spec, because a run has one path whatever an experiment calls it."""
    known = [f"{stage.kind}{stage.epochs}" for stage in spec.stages]
    stages = f"adaptive{spec.epochs}" if spec.adaptive else "-".join(known) if len(known) <= 3 else "alternating"
    return stages if spec.loss.name == "kl" else f"{spec.loss.name}-{stages}"


@functools.cache
def _digest_if_there(path: str | None) -> str | None:
    file = Path(path) if path else None
    return file_digest(file) if file and file.is_file() else None
