"""The plan: every spec by key, every path by name. It is frozen to a file when a run starts, and jobs read that."""

import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from hald.files import read_json, write_json
from hald.plan.settings import Jobs
from hald.specs.analysis import AnalysisSpec
from hald.specs.base import from_dict, to_dict
from hald.specs.dataset import DatasetSpec
from hald.specs.figure import FigureSpec
from hald.specs.images import ImagesSpec, RankingSpec, StatisticsSpec, UnitsSpec
from hald.specs.labels import LabelsSpec
from hald.specs.run import RunSpec
from hald.specs.table import TableSpec
from hald.specs.teacher import TeacherSpec


@dataclass(frozen=True)
class Code:
    """The code behind each stage."""

    digests: dict[str, str]  # what artefacts record, and what a job compares with the code that it is to run
    names: dict[str, str]  # what keys are made from: the version where the ledger knows the digest


@dataclass(frozen=True)
class Plan:
    """What there is to do. Dictionaries go from key to spec (tables: from id)."""

    results: str
    stores: str
    jobs: Jobs
    code: Code
    datasets: dict[str, DatasetSpec] = field(default_factory=dict)
    teachers: dict[str, TeacherSpec] = field(default_factory=dict)
    rankings: dict[str, RankingSpec] = field(default_factory=dict)
    statistics: dict[str, StatisticsSpec] = field(default_factory=dict)
    units: dict[str, UnitsSpec] = field(default_factory=dict)
    images: dict[str, ImagesSpec] = field(default_factory=dict)
    labels: dict[str, LabelsSpec] = field(default_factory=dict)
    runs: dict[str, RunSpec] = field(default_factory=dict)
    tables: dict[str, TableSpec] = field(default_factory=dict)
    analyses: dict[str, AnalysisSpec] = field(default_factory=dict)
    figures: dict[str, FigureSpec] = field(default_factory=dict)
    slugs: dict[str, str] = field(default_factory=dict)  # readable name of every key
    names: dict[str, str] = field(default_factory=dict)  # what its experiment calls a teacher or an analysis
    views: dict[str, int] = field(default_factory=dict)  # views that the runs need of each label store
    unit_counts: dict[str, int] = field(default_factory=dict)  # units that the sets need of each ranking or units
    seeds: dict[str, int] = field(default_factory=dict)  # seeds that the tables need of each run
    kept: dict[str, int] = field(default_factory=dict)  # seeds of each run whose students are kept
    blocks: dict[str, int] = field(default_factory=dict)  # units per job (hald.plan.sizes)
    floors: dict[str, float] = field(default_factory=dict)  # accuracy below which a teacher is refused

    def dataset_dir(self, key: str) -> Path:
        """Prepared dataset: manifest.json, the packed splits."""
        return Path(self.results, "datasets", self.slugs[key])

    def teacher_dir(self, key: str) -> Path:
        """Teacher: teacher.json, teacher.safetensors."""
        return Path(self.results, "teachers", self.slugs[key])

    def units_dir(self, key: str) -> Path:
        """Units of synthesis: classes of a ranking, or optimised images."""
        return Path(self.results, "rankings" if key in self.rankings else "units", self.slugs[key])

    def unit(self, key: str, unit: int) -> Path:
        """One finished unit."""
        return self.units_dir(key) / f"{unit:05d}.npz"

    def statistics_dir(self, key: str) -> Path:
        """Class-wise BN statistics of a teacher: statistics.json, statistics.safetensors."""
        return Path(self.results, "statistics", self.slugs[key])

    def images_dir(self, key: str) -> Path:
        """Distilled image set."""
        return Path(self.results, "images", f"{self.slugs[key]}.zarr")

    def store_dir(self, key: str) -> Path:
        """Soft-label store."""
        return Path(self.stores, f"{self.slugs[key]}.zarr")

    def marker(self, key: str, view: int) -> Path:
        """Completion marker of one view of a label store."""
        return self.store_dir(key) / "views" / f"{view:05d}.json"

    def ticket(self, key: str, view: int) -> Path:
        """Output of the job that labels up to a view. Not the marker: Snakemake removes the outputs of jobs that begin
        or fail, and what lies in a store belongs to others too.
        """
        return Path(self.results, "relabelled", self.slugs[key], f"{view:05d}")

    def run_dir(self, key: str) -> Path:
        """Records of a run, one per seed."""
        return Path(self.results, "runs", self.slugs[key])

    def record(self, key: str, seed: int) -> Path:
        """Result record of one trained student."""
        return self.run_dir(key) / f"seed-{seed}.json"

    def student(self, key: str, seed: int, stage: int) -> Path:
        """Weights of a kept student after a stage."""
        return self.run_dir(key) / "students" / f"seed-{seed}" / f"stage-{stage}.safetensors"

    def kept_student(self, key: str) -> Path:
        """The file that says that the first student of a run was kept: the last one to be written."""
        return self.student(key, 0, len(self.runs[key].stages) - 1)

    def analysis_file(self, key: str) -> Path:
        """What an analysis found."""
        return Path(self.results, "analyses", f"{self.slugs[key]}.json")

    def figure_file(self, figure: str, suffix: str) -> Path:
        """One format of a figure."""
        return Path(self.results, "figures", f"{figure}.{suffix}")

    def preview_file(self, key: str) -> Path:
        """Preview sheet of an image set, for people."""
        return Path(self.results, "figures", "previews", f"{self.slugs[key]}.png")

    def table_file(self, table: str, suffix: str) -> Path:
        """One format of a results table."""
        return Path(self.results, "tables", f"{table}.{suffix}")

    def meaning_file(self, kind: str, name: str) -> Path:
        """What the table or figure (`kind`: tables, figures) that exists was made to show."""
        return Path(self.results, ".plan", kind, f"{name}.json")

    def partial(self, key: str) -> Path:
        """Unfinished work: never a declared output, so that neither Snakemake nor a kill removes it."""
        return Path(self.results, ".partial", key)

    def key(self, slug: str) -> str:
        """The key inside a readable name."""
        return slug.rsplit("_", 1)[1]

    def freeze(self, path: Path) -> None:
        """Write the plan for the jobs of this run. The stamp makes its bytes new: Snakemake compares checksums."""
        write_json(path, to_dict(self) | {"stamp": time.time_ns()})

    def meaning(self, kind: str, name: str) -> dict[str, Any]:
        """What a table or figure shows: its definition, the runs or analyses behind it, and the code that makes it."""
        spec = self.tables[name] if kind == "tables" else self.figures[name]
        slugs = [self.slugs[key] for key in self.sources(kind, name)]
        return to_dict(spec) | {"code": self.code.digests[kind], "slugs": slugs}

    def sources(self, kind: str, name: str) -> list[str]:
        """Keys of the runs and analyses that a table or figure is made from."""
        table = self.tables[name] if kind == "tables" else self.figures[name].table
        keys = [cell.run for cell in table.cells] if table else []
        return list(dict.fromkeys(keys + list(self.figures[name].analyses if kind == "figures" else ())))

    def is_current(self, kind: str, name: str) -> bool:
        """Whether a table or figure that exists means what this plan means by it, and still has all it is made from."""
        written = self.meaning_file(kind, name)
        return written.exists() and read_json(written) == self.meaning(kind, name) and self.has_sources(kind, name)

    def has_sources(self, kind: str, name: str) -> bool:
        """Whether all records and analyses behind a table or figure are there."""
        table = self.tables[name] if kind == "tables" else self.figures[name].table
        return all(
            self.analysis_file(key).exists()
            if key in self.analyses
            else all(self.record(key, seed).exists() for seed in range(table.seeds if table else 0))
            for key in self.sources(kind, name)
        )

    @classmethod
    def thaw(cls, path: Path) -> "Plan":
        """Read a frozen plan."""
        data = read_json(path)
        return from_dict(cls, {f.name: data[f.name] for f in fields(cls)})
