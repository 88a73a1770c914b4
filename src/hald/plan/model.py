"""The plan: every spec by stage and key, every path by name. It is frozen when a run starts, and jobs read that."""

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from hald.analysis.spec import AnalysisSpec
from hald.code_digests import digest_of
from hald.config.settings import Jobs
from hald.datasets.spec import DatasetSpec
from hald.errors import UserError, suggest
from hald.evaluation.spec import RunSpec
from hald.files import read_json, write_json
from hald.labels.spec import LabelsSpec
from hald.plain import from_dict, to_dict
from hald.plan.blocks import Block
from hald.plan.stage import Needs
from hald.plan.stages import STAGES
from hald.report.spec import FigureSpec, TableSpec
from hald.squeeze.spec import TeacherSpec
from hald.synthesis.spec import ImagesSpec, RankingSpec, StatisticsSpec, UnitsSpec


@dataclass(frozen=True)
class Code:
    """The code behind each part of the package."""

    digests: dict[str, str]  # what artefacts record, and what a job compares with the code that it is to run
    names: dict[str, str]  # what keys are made from: the version where the ledger knows the digest

    def digest(self, parts: Sequence[str]) -> str:
        """The digest of the code of some parts; none of no part."""
        return digest_of(parts, self.digests) if parts else ""

    def name(self, parts: Sequence[str]) -> str:
        """What keys call the code of some parts; tables and figures have no keys."""
        return "+".join(self.names[part] for part in parts if part in self.names)


@dataclass(frozen=True)
class Plan:
    """What there is to do."""

    results: str
    stores: str
    jobs: Jobs
    code: Code
    # by stage, then by key (of a table or figure: its id)
    specs: dict[str, Any] = field(default_factory=lambda: {name: {} for name in STAGES})
    slugs: dict[str, str] = field(default_factory=dict)  # readable name of every key
    names: dict[str, str] = field(default_factory=dict)  # what its experiment calls a teacher or an analysis
    kept: dict[str, int] = field(default_factory=dict)  # seeds of each run whose students are kept
    floors: dict[str, float] = field(default_factory=dict)  # accuracy below which a teacher is refused
    blocks: dict[str, tuple[Block, ...]] = field(default_factory=dict)  # units of each job, by key

    @property
    def datasets(self) -> Mapping[str, DatasetSpec]:
        """Datasets."""
        return cast(Mapping[str, DatasetSpec], self.specs["dataset"])

    @property
    def teachers(self) -> Mapping[str, TeacherSpec]:
        """Teachers."""
        return cast(Mapping[str, TeacherSpec], self.specs["squeeze"])

    @property
    def rankings(self) -> Mapping[str, RankingSpec]:
        """Rankings of real images."""
        return cast(Mapping[str, RankingSpec], self.specs["rank"])

    @property
    def statistics(self) -> Mapping[str, StatisticsSpec]:
        """Class-wise BN statistics."""
        return cast(Mapping[str, StatisticsSpec], self.specs["statistics"])

    @property
    def units(self) -> Mapping[str, UnitsSpec]:
        """Optimised images."""
        return cast(Mapping[str, UnitsSpec], self.specs["recover"])

    @property
    def images(self) -> Mapping[str, ImagesSpec]:
        """Image sets."""
        return cast(Mapping[str, ImagesSpec], self.specs["synthesize"])

    @property
    def labels(self) -> Mapping[str, LabelsSpec]:
        """Label stores."""
        return cast(Mapping[str, LabelsSpec], self.specs["relabel"])

    @property
    def runs(self) -> Mapping[str, RunSpec]:
        """Trainings."""
        return cast(Mapping[str, RunSpec], self.specs["evaluate"])

    @property
    def analyses(self) -> Mapping[str, AnalysisSpec]:
        """Analyses."""
        return cast(Mapping[str, AnalysisSpec], self.specs["analysis"])

    @property
    def tables(self) -> Mapping[str, TableSpec]:
        """Tables by id."""
        return cast(Mapping[str, TableSpec], self.specs["table"])

    @property
    def figures(self) -> Mapping[str, FigureSpec]:
        """Figures by id."""
        return cast(Mapping[str, FigureSpec], self.specs["figure"])

    def needs(self, stage: str, key: str) -> Needs:
        """What a piece of work is made from, by the names of its rule's inputs."""
        return STAGES[stage].needs(self.specs[stage][key])

    @functools.cached_property
    def needed(self) -> dict[tuple[str, str], int]:
        """How many units of each key are needed."""
        found: dict[tuple[str, str], int] = {}
        for stage, specs in self.specs.items():
            for key in specs:
                for need in (need for needs in self.needs(stage, key).values() for need in needs):
                    found[need.stage, need.key] = max(found.get((need.stage, need.key), 0), need.units)
        return found

    @property
    def foreign_stores(self) -> bool:
        """Whether label stores are outside of the results: others may use them."""
        return not Path(self.stores).absolute().is_relative_to(Path(self.results).absolute())

    def folder(self, stage: str, key: str) -> Path:
        """Where the finished units of a key lie."""
        return Path(self._folder(stage, key))

    def _folder(self, stage: str, key: str) -> str:
        slug = self.slugs.get(key, key)
        return STAGES[stage].folder.format(results=self.results, stores=self.stores, slug=slug)

    def files(self, stage: str, key: str, unit: int = 0) -> list[str]:
        """The files that are there when a unit is whole; of work in one piece: all that its rule declares."""
        folder = self._folder(stage, key)
        kept = unit < self.kept.get(key, 0)
        return [f"{folder}/{name}" for name in STAGES[stage].files(self.specs[stage][key], unit, kept)]

    def file(self, stage: str, key: str, unit: int = 0) -> Path:
        """The file that says that a unit is there: a view's marker, a student's record, a teacher's."""
        return Path(self.files(stage, key, unit)[0])

    def table_file(self, table: str, suffix: str) -> Path:
        """One format of a results table."""
        return self.folder("table", table) / f"{table}.{suffix}"

    def partial(self, key: str) -> Path:
        """Unfinished work: never a declared output, so that neither Snakemake nor a kill removes it."""
        return Path(self.results, ".partial", key)

    def key(self, stage: str, slug: str) -> str:
        """The key of a readable name, of a table or figure: its id."""
        specs = self.specs[stage]
        if slug in specs:
            return slug
        key = slug.rpartition("_")[2]
        if key in specs and self.slugs[key] == slug:
            return key
        if STAGES[stage].fixed_name:
            raise UserError(f"there is no {stage} '{slug}' in this plan. {suggest(slug, specs)}")
        raise UserError(f"'{slug}' is not part of this plan: its settings or its code are others now; see `hald plan`")

    def meaning(self, stage: str, key: str) -> dict[str, Any]:
        """What a table or figure shows: its definition, the runs or analyses behind it, and the code that makes it."""
        slugs = dict.fromkeys(self.slugs[need.key] for needs in self.needs(stage, key).values() for need in needs)
        spec = self.specs[stage][key]
        return to_dict(spec) | {"code": self.code.digest(STAGES[stage].parts(spec)), "slugs": list(slugs)}

    def freeze(self, path: Path) -> None:
        """Write the plan for the jobs of this run. The stamp makes its bytes new: Snakemake compares checksums."""
        write_json(path, to_dict(self) | {"stamp": time.time_ns()})

    @classmethod
    def thaw(cls, path: Path) -> "Plan":
        """Read a frozen plan; a job looks at few of its specs."""
        data = read_json(path)
        plain = {f.name: data[f.name] for f in fields(cls)}
        specs = {name: Thawing(STAGES[name].spec, known) for name, known in plain.pop("specs").items()}
        return from_dict(cls, plain | {"specs": specs})


class Thawing(Mapping[str, Any]):
    """Specs that are made from plain values when they are asked for."""

    def __init__(self, spec: type, plain: Mapping[str, Any]) -> None:
        self.spec, self.plain = spec, plain
        self.made: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self.made:
            self.made[key] = from_dict(self.spec, self.plain[key])
        return self.made[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.plain)

    def __len__(self) -> int:
        return len(self.plain)
