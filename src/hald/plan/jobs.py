"""What each rule's jobs need, from the plan: missing inputs, and all parameters as plain JSON values.

A path names its content and appears in one step, so what exists is right and is not asked for again. (Snakemake's
`ancient()` would say nearly the same, but version 9.27 then forgets the jobs behind an input that it re-runs as
incomplete.)
"""

from pathlib import Path
from typing import Any

from hald.errors import UserError
from hald.plan.arithmetic import missing_blocks, views_behind
from hald.plan.model import Plan
from hald.specs.base import to_dict
from hald.specs.images import FromRanking, FromUnits, Lpld, Patches

Work = dict[str, Any]


def unless_there(*paths: Path) -> list[str]:
    """Those of `paths` that do not exist yet."""
    return [str(path) for path in paths if not path.exists()]


def made_from_units(source: object) -> str | None:
    """Key of the ranking or of the units that an image set is made from."""
    if isinstance(source, FromRanking | Patches):
        return source.ranking
    return source.units if isinstance(source, FromUnits) else None


class RuleJobs:
    """Input and parameter functions of the rules; `w` is Snakemake's wildcards."""

    def __init__(self, plan: Plan, plan_file: str) -> None:
        self.plan, self.plan_file = plan, plan_file

    def threads(self, w: Any) -> int:
        """Threads of a job: those of its spec, so that results do not depend on where it ran."""
        key = self._key(w)
        p = self.plan
        specs: list[dict[str, Any]] = [p.teachers, p.rankings, p.statistics, p.units, p.images, p.labels, p.runs]
        return int(next(table[key].threads for table in specs if key in table))

    def _key(self, w: Any) -> str:
        (slug,) = (value for name, value in w.items() if name not in ("view", "seed", "stage", "unit"))
        key = self.plan.key(slug)
        if self.plan.slugs.get(key) != slug:
            raise UserError(
                f"'{slug}' is not part of this plan: its settings or its code are others now; see `hald plan`"
            )
        return key

    def _work(self, w: Any, stage: str, spec: Any, dataset: str) -> Work:
        """What all stages need: the spec, the code it was planned with, the dataset, a place for unfinished work."""
        return {
            "stage": stage,
            "code": self.plan.code.digests[stage],
            "code_name": self.plan.code.names[stage],
            "key": self._key(w),
            "spec": to_dict(spec),
            "dataset_key": dataset,
            "dataset": str(self.plan.dataset_dir(dataset)),
            "partial": str(self.plan.partial(self._key(w))),
            "workers": self.plan.jobs.workers,
        }

    def _manifest(self, dataset: str) -> Path:
        return self.plan.dataset_dir(dataset) / "manifest.json"

    def _teacher(self, teacher: str) -> Path:
        return self.plan.teacher_dir(teacher) / "teacher.json"

    def dataset(self, w: Any) -> Work:
        """Parameters of rule dataset."""
        key = self._key(w)
        spec = self.plan.datasets[key]
        return self._work(w, f"dataset.{spec.source}", spec, key)

    def squeeze_inputs(self, w: Any) -> list[str]:
        """Prepared dataset, and weights that a rule fetches. (A user's own file is checked by preflight.)"""
        spec = self.plan.teachers[self._key(w)]
        weights = self._weights(self._key(w))
        return unless_there(self._manifest(spec.dataset), *([weights] if weights and not spec.path else []))

    def squeeze(self, w: Any) -> Work:
        """Parameters of rule squeeze."""
        key = self._key(w)
        weights = self._weights(key)
        spec = self.plan.teachers[key]
        return self._work(w, "squeeze", spec, spec.dataset) | {"weights": str(weights) if weights else None}

    def _weights(self, key: str) -> Path | None:
        spec = self.plan.teachers[key]
        if spec.source == "torchvision":
            return Path(self.plan.results, "weights", spec.arch, f"{spec.weights}.safetensors")
        return Path(spec.path) if spec.path else None

    def synthesize_inputs(self, w: Any) -> list[str]:
        """Prepared dataset, the teachers that grade the set, and the units that it is made from."""
        spec = self.plan.images[self._key(w)]
        made_from = made_from_units(spec.source)
        units = self.missing_units(made_from, self._units_needed(made_from, spec.ipc)) if made_from else []
        return unless_there(self._manifest(spec.dataset), *map(self._teacher, spec.teachers)) + units

    def synthesize(self, w: Any) -> Work:
        """Parameters of rule synthesize."""
        spec = self.plan.images[self._key(w)]
        made_from = made_from_units(spec.source)
        folder = str(self.plan.units_dir(made_from)) if made_from else spec.path
        more = self._teachers(spec.teachers) | {"made_from": folder}
        return self._work(w, f"synthesis.{spec.method}", spec, spec.dataset) | more

    def _teachers(self, keys: tuple[str, ...]) -> Work:
        """Folders of teachers, the networks they are, and the accuracy that they must have."""
        networks = [to_dict(self.plan.teachers[key]) for key in keys]
        folders = [str(self.plan.teacher_dir(key)) for key in keys]
        floor = max((self.plan.floors[key] for key in keys), default=0.0)
        return {"teachers": folders, "networks": networks, "floor": floor}

    def _units_needed(self, key: str, ipc: int) -> int:
        """Units that a set of this IPC needs: all classes of a ranking, a prefix of optimised units."""
        return self.plan.rankings[key].classes if key in self.plan.rankings else self.plan.units[key].count(ipc)

    def missing_units(self, key: str, needed: int) -> list[str]:
        """Units to make so that the first `needed` are there, as last units of their blocks in this plan."""
        done = [self.plan.unit(key, unit).exists() for unit in range(self.plan.unit_counts[key])]
        blocks = missing_blocks(done, self.plan.blocks[key], needed)
        return [str(self.plan.unit(key, unit)) for unit in blocks]

    def _block(self, w: Any) -> Work:
        """The units of a job; the wildcard names the last one of a block, the job fills its gaps."""
        last, size = int(w.unit), self.plan.blocks[self._key(w)]
        return {"units": [last // size * size, last], "folder": str(self.plan.units_dir(self._key(w)))}

    def rank_inputs(self, w: Any) -> list[str]:
        """Prepared dataset and teacher."""
        spec = self.plan.rankings[self._key(w)]
        return unless_there(self._manifest(spec.dataset), self._teacher(spec.teacher))

    def rank(self, w: Any) -> Work:
        """Parameters of rule rank."""
        spec = self.plan.rankings[self._key(w)]
        return self._work(w, "ranking", spec, spec.dataset) | self._teachers((spec.teacher,)) | self._block(w)

    def statistics_inputs(self, w: Any) -> list[str]:
        """Prepared dataset and teacher."""
        spec = self.plan.statistics[self._key(w)]
        return unless_there(self._manifest(spec.dataset), self._teacher(spec.teacher))

    def statistics(self, w: Any) -> Work:
        """Parameters of rule statistics."""
        spec = self.plan.statistics[self._key(w)]
        return self._work(w, "statistics", spec, spec.dataset) | self._teachers((spec.teacher,))

    def recover_inputs(self, w: Any) -> list[str]:
        """Prepared dataset, teachers, and the ranking or the class statistics of methods that have them."""
        spec = self.plan.units[self._key(w)]
        paths = [self._manifest(spec.dataset), *map(self._teacher, spec.teachers)]
        if isinstance(spec.own, Lpld):
            return unless_there(*paths, self.plan.statistics_dir(spec.own.statistics) / "statistics.json")
        patches = spec.own.patches
        return unless_there(*paths) + (self.missing_units(patches.ranking, spec.classes) if patches else [])

    def recover(self, w: Any) -> Work:
        """Parameters of rule recover."""
        spec = self.plan.units[self._key(w)]
        made_from = None
        if isinstance(spec.own, Lpld):
            made_from = str(self.plan.statistics_dir(spec.own.statistics))
        elif spec.own.patches:
            made_from = str(self.plan.units_dir(spec.own.patches.ranking))
        more = self._teachers(spec.teachers) | self._block(w) | {"made_from": made_from}
        return self._work(w, f"recover.{spec.method}", spec, spec.dataset) | more

    def relabel_inputs(self, w: Any) -> list[str]:
        """Image set and teacher, unless the store exists: it has them in it, so that growing it asks for neither."""
        key = self._key(w)
        if (self.plan.store_dir(key) / "zarr.json").exists():
            return []
        spec = self.plan.labels[key]
        return unless_there(self.plan.images_dir(spec.images) / "image_set.json", *map(self._teacher, spec.teachers))

    def relabel(self, w: Any) -> Work:
        """Parameters of rule relabel; the wildcard names the last view of a block, the job fills its gaps."""
        key = self._key(w)
        spec = self.plan.labels[key]
        last, size = int(w.view), self.plan.blocks[key]
        return self._work(w, "relabel", spec, self.plan.images[spec.images].dataset) | {
            "images": str(self.plan.images_dir(spec.images)),
            "teachers": [str(self.plan.teacher_dir(key)) for key in spec.teachers],
            "store": str(self.plan.store_dir(key)),
            "views": [last // size * size, last],
            "floor": max(self.plan.floors[key] for key in spec.teachers),
        }

    def missing_views(self, labels: str, needed: int) -> list[str]:
        """What to make so that a store has its first `needed` views: tickets of last views of blocks in this plan."""
        done = [self.plan.marker(labels, view).exists() for view in range(self.plan.views[labels])]
        blocks = missing_blocks(done, self.plan.blocks[labels], needed)
        return [str(self.plan.ticket(labels, view)) for view in blocks]

    def forget_tickets(self) -> None:
        """Remove tickets of views that are not, or no longer, in their store. For the main process, before it plans."""
        for key in self.plan.labels:
            for ticket in self.plan.ticket(key, 0).parent.glob("*"):
                if not self.plan.marker(key, int(ticket.name)).exists():
                    ticket.unlink(missing_ok=True)

    def evaluate_inputs(self, w: Any) -> list[str]:
        """Prepared dataset (for the test split) and label views."""
        spec = self.plan.runs[self._key(w)]
        views = views_behind(spec.pool, self.plan.labels[spec.labels].batches)
        return unless_there(self._manifest(spec.dataset)) + self.missing_views(spec.labels, views)

    def evaluate(self, w: Any) -> Work:
        """Parameters of rule evaluate; the wildcard names the last seed of a block."""
        last, size = int(w.seed), self.plan.blocks[self._key(w)]
        return self._training(w, range(last // size * size, last + 1))

    def student(self, w: Any) -> Work:
        """Parameters of rule student."""
        return self._training(w, range(int(w.seed), int(w.seed) + 1))

    def _training(self, w: Any, seeds: range) -> Work:
        key = self._key(w)
        spec = self.plan.runs[key]
        return self._work(w, "evaluate", spec, spec.dataset) | {
            "store": str(self.plan.store_dir(spec.labels)),
            "records": str(self.plan.run_dir(key)),
            "seeds": list(seeds),
            "kept": self.plan.kept.get(key, 0),
        }

    def missing_student(self, run: str) -> list[str]:
        """What to make so that the first student of a run is there: its record, with which it is kept, or itself."""
        return self.missing_records(run, 1) or unless_there(self.plan.kept_student(run))

    def missing_records(self, run: str, needed: int) -> list[str]:
        """Records to make so that a run has its first `needed` seeds, as last seeds of their blocks in this plan."""
        done = [self.plan.record(run, seed).exists() for seed in range(self.plan.seeds[run])]
        blocks = missing_blocks(done, self.plan.blocks[run], needed)
        return [str(self.plan.record(run, seed)) for seed in blocks]
