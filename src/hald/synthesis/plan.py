"""Image settings -> specs of rankings, class statistics, units and image sets."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hald.config.read import expand
from hald.config.settings import Images
from hald.errors import UserError
from hald.synthesis.class_folders import folder_digest
from hald.synthesis.spec import (
    Fadrm,
    FromDataset,
    FromFolder,
    FromRanking,
    FromUnits,
    ImagesSpec,
    Lpld,
    Patches,
    PreviewSpec,
    RankingSpec,
    Recover,
    Sre2l,
    StatisticsSpec,
    UnitsSpec,
)

if TYPE_CHECKING:
    from hald.plan.planning import Builder


@dataclass(frozen=True)
class ImagesBuilder:
    """Resolves one image set at one IPC."""

    b: "Builder"
    images: Images
    name: str
    ipc: int

    def build(self) -> str:
        """Add the set and all it is made from to the plan; its key."""
        method = self.images.method
        if (method == "external") != (self.images.path is not None):
            raise self._error(f"has method {method} and path {self.images.path}; give both or neither")
        dataset = self.b.settings()
        spec = ImagesSpec(
            method=method,
            dataset=self.b.dataset(),
            teachers=self._teachers(),
            classes=dataset.classes,
            ipc=self.ipc,
            size=dataset.size,
            source=self._source(),
            threads=self.b.experiment.threads,
            path=expand(self.images.path) if self.images.path else None,
        )
        plan = self.b.plan
        key = self.b.add("synthesize", spec, f"{self._slug}-ipc{self.ipc}")
        plan.specs["preview"][key] = PreviewSpec(key, self.ipc, plan.slugs[key])
        source = plan.datasets[spec.dataset]
        per_class = max(source.per_class, self._real_images())
        plan.specs["dataset"][spec.dataset] = replace(source, per_class=per_class)
        return key

    @property
    def _slug(self) -> str:
        return f"{self.b.experiment.dataset}/{self.images.method}"

    def _error(self, text: str) -> UserError:
        return UserError(f"{self.b.where}: image set '{self.name}' {text}")

    def _teachers(self) -> tuple[str, ...]:
        names = self.images.teachers or (self.images.teacher or self.b.experiment.teacher,)
        if len(names) > 1 and self.images.method not in ("sre2l", "fadrm"):
            raise self._error(f"has {len(names)} teachers, but {self.images.method} uses one; set `teacher`")
        keys = tuple(self.b.teacher(name) for name in names)
        specs = [self.b.plan.teachers[key] for key in keys]
        if len({(spec.mean, spec.std) for spec in specs}) > 1:
            raise self._error("has teachers that are fed with different `mean` or `std`; its images live in one space")
        return keys

    def _needs_ranking(self) -> bool:
        m = self.images
        return m.method in ("rded", "patches", "fadrm") or (m.method == "sre2l" and m.init == "patches")

    def _real_images(self) -> int:
        """Real images that a class must have for this set."""
        if self._needs_ranking():
            return self.ipc * self.images.factor**2
        return self.ipc if self.images.method == "real" else 0

    def _source(self) -> FromDataset | FromRanking | Patches | FromUnits | FromFolder:
        m = self.images
        if m.method == "real":
            return FromDataset(self.b.settings().resize, m.seed)
        if m.method == "external":
            assert m.path is not None
            return FromFolder(folder_digest(Path(expand(m.path))))
        if m.method == "rded":
            return FromRanking(self._ranking(), m.factor)
        return self._patches() if m.method == "patches" else FromUnits(self._units(), m.batch)

    def _patches(self) -> Patches:
        return Patches(self._ranking(), self.images.difficulty, self.images.factor)

    def _ranking(self) -> str:
        m, dataset = self.images, self.b.settings()
        needed = self.ipc * m.factor**2
        if m.mipc < needed:
            raise self._error(
                f"looks at mipc = {m.mipc} images per class, but IPC {self.ipc} with factor {m.factor} needs {needed}; "
                f"raise mipc"
            )
        if m.factor > dataset.size:
            raise self._error(f"has factor {m.factor}, more than the {dataset.size} pixels of an image; lower it")
        self._require_order("crop_scale", m.crop_scale)
        spec = RankingSpec(
            dataset=self.b.dataset(),
            teacher=self._teachers()[0],
            classes=dataset.classes,
            size=dataset.size,
            side=dataset.size // m.factor,
            mipc=m.mipc,
            num_crop=m.num_crop,
            crop_scale=m.crop_scale,
            seed=m.seed,
            threads=self.b.experiment.threads,
        )
        return self.b.add("rank", spec, f"{self.b.experiment.dataset}/crops{spec.side}")

    def _units(self) -> str:
        m, dataset, plan = self.images, self.b.settings(), self.b.plan
        teachers = self._teachers()
        spec = UnitsSpec(
            method=m.method,
            dataset=self.b.dataset(),
            teachers=teachers,
            arch="+".join(plan.teachers[key].arch for key in teachers),
            classes=dataset.classes,
            size=dataset.size,
            batch=m.batch,
            own=self._own(),
            recover=self._recover(),
            seed=m.seed,
            threads=self.b.experiment.threads,
        )
        return self.b.add("recover", spec, self._slug)

    def _own(self) -> Sre2l | Fadrm | Lpld:
        if self.images.method == "lpld":
            return Lpld(self.ipc, self._statistics())
        if self.images.method == "fadrm":
            return Fadrm(self._patches(), self.images.alpha)
        return Sre2l(self._patches() if self.images.init == "patches" else None)

    def _recover(self) -> Recover:
        """The optimisation with a size for every stage, after checking that they fit."""
        r, size = self.images.recover, self.b.settings().size
        stages = len(r.budgets)
        if self.images.method != "fadrm" and stages > 1:
            raise self._error(f"has {stages} budgets, but {self.images.method} has one stage; give one number")
        if r.sizes and len(r.sizes) != stages:
            raise self._error(f"has {len(r.sizes)} sizes and {stages} budgets; give one of each for every stage")
        if r.sizes and r.sizes[-1] != size:
            raise self._error(
                f"ends with images of {r.sizes[-1]} pixels, the dataset has {size}; correct recover.sizes"
            )
        for what, pair in (("scale", r.scale), ("ratio", r.ratio), ("roll", r.roll)):
            self._require_order(f"recover.{what}", pair)
        return replace(r, sizes=r.sizes or (size,) * stages)

    def _require_order(self, what: str, pair: tuple[float, float]) -> None:
        if pair[0] > pair[1]:
            raise self._error(f"has {what} [{pair[0]:g}, {pair[1]:g}]; write the smaller value first")

    def _statistics(self) -> str:
        m, dataset = self.images, self.b.settings()
        spec = StatisticsSpec(
            dataset=self.b.dataset(),
            teacher=self._teachers()[0],
            kind=m.bn_stats,
            classes=dataset.classes,
            size=dataset.size,
            scale=dataset.augment.scale,
            ratio=dataset.augment.ratio,
            flip=dataset.augment.flip,
            batch=m.stats_batch,
            seed=m.seed,
            threads=self.b.experiment.threads,
        )
        return self.b.add("statistics", spec, f"{self.b.experiment.dataset}/{m.bn_stats}")
