"""Image settings -> specs of rankings, class statistics, units and image sets."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hald.config.read import expand
from hald.errors import UserError
from hald.synthesis.class_folders import folder_digest
from hald.synthesis.methods.external.settings import Settings as ExternalSettings
from hald.synthesis.methods.fadrm.settings import Settings as FadrmSettings
from hald.synthesis.methods.lpld.settings import Settings as LpldSettings
from hald.synthesis.methods.patches.settings import Settings as PatchesSettings
from hald.synthesis.methods.rded.settings import Settings as RdedSettings
from hald.synthesis.methods.real.settings import Settings as RealSettings
from hald.synthesis.methods.sre2l.settings import Settings as Sre2lSettings
from hald.synthesis.settings import ImageSet, Optimised, Patched, Ranked
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
    images: ImageSet
    name: str
    ipc: int

    def build(self) -> str:
        """Add the set and all it is made from to the plan; its key."""
        dataset = self.b.settings()
        spec = ImagesSpec(
            method=self.images.method,
            dataset=self.b.dataset(),
            teachers=self._teachers(),
            classes=dataset.classes,
            ipc=self.ipc,
            size=dataset.size,
            source=self._source(),
            threads=self.b.experiment.threads,
            path=expand(self.images.path) if isinstance(self.images, ExternalSettings) else None,
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
        m = self.images
        names = (m.teachers if isinstance(m, Optimised) else None) or (m.teacher or self.b.experiment.teacher,)
        if len(names) > 1 and isinstance(m, Optimised) and not m.SEVERAL_TEACHERS:
            raise self._error(f"has {len(names)} teachers, but {m.method} uses one; set `teacher`")
        keys = tuple(self.b.teacher(name) for name in names)
        specs = [self.b.plan.teachers[key] for key in keys]
        if len({(spec.mean, spec.std) for spec in specs}) > 1:
            raise self._error("has teachers that are fed with different `mean` or `std`; its images live in one space")
        return keys

    def _real_images(self) -> int:
        """Real images that a class must have for this set."""
        m = self.images
        if isinstance(m, Ranked) and not (isinstance(m, Sre2lSettings) and m.init == "gaussian"):
            return self.ipc * m.factor**2
        return self.ipc if isinstance(m, RealSettings) else 0

    def _source(self) -> FromDataset | FromRanking | Patches | FromUnits | FromFolder:
        match self.images:
            case RealSettings() as m:
                return FromDataset(self.b.settings().resize, m.seed)
            case ExternalSettings() as m:
                return FromFolder(folder_digest(Path(expand(m.path))))
            case RdedSettings() as m:
                return FromRanking(self._ranking(m), m.factor)
            case PatchesSettings() as m:
                return self._patches(m)
            case Optimised() as m:
                return FromUnits(self._units(m), m.batch)
        raise AssertionError(f"no images of method {self.images.method}")

    def _patches(self, m: Patched) -> Patches:
        return Patches(self._ranking(m), m.difficulty, m.factor)

    def _ranking(self, m: Ranked) -> str:
        dataset = self.b.settings()
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

    def _units(self, m: Optimised) -> str:
        dataset, plan = self.b.settings(), self.b.plan
        teachers = self._teachers()
        spec = UnitsSpec(
            method=m.method,
            dataset=self.b.dataset(),
            teachers=teachers,
            arch="+".join(plan.teachers[key].arch for key in teachers),
            classes=dataset.classes,
            size=dataset.size,
            batch=m.batch,
            own=self._own(m),
            recover=self._recover(m),
            seed=m.seed,
            threads=self.b.experiment.threads,
        )
        return self.b.add("recover", spec, self._slug)

    def _own(self, m: Optimised) -> Sre2l | Fadrm | Lpld:
        match m:
            case LpldSettings():
                return Lpld(self.ipc, self._statistics(m))
            case FadrmSettings():
                return Fadrm(self._patches(m), m.alpha)
            case Sre2lSettings():
                return Sre2l(self._patches(m) if m.init == "patches" else None)
        raise AssertionError(f"{m.method} optimises nothing")

    def _recover(self, m: Optimised) -> Recover:
        """The optimisation with a size for every stage, after checking that they fit."""
        r, size = m.recover, self.b.settings().size
        stages = len(r.budgets)
        if not isinstance(m, FadrmSettings) and stages > 1:
            raise self._error(f"has {stages} budgets, but {m.method} has one stage; give one number")
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

    def _statistics(self, m: LpldSettings) -> str:
        dataset = self.b.settings()
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
