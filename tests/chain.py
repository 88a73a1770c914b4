"""The whole pipeline in one process: YAML in, files out, without Snakemake.

What a test sees is what a run computes: the config is read from files, the plan is made, and every job runs the
workflow's own script with the parameters that the plan gives it. Only this file knows how the package arranges that.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import yaml
from PIL import Image

import hald.jobs
from conftest import ROOT, copy_known
from hald.files import read_json
from hald.plan import Plan, make_plan
from hald.plan.jobs import RuleJobs
from hald.plan.outcome_jobs import OutcomeJobs

# rule: the file that says it is done, the script, and the functions that give inputs and parameters
RULES = {
    "dataset": (r"datasets/(?P<dataset>.+)/manifest\.json", "dataset", None, "dataset"),
    "weights": (r"weights/(?P<arch>.+/.+)/(?P<weights>.+)\.safetensors", "weights", None, None),
    "squeeze": (r"teachers/(?P<teacher>.+)/teacher\.json", "squeeze", "squeeze_inputs", "squeeze"),
    "rank": (r"rankings/(?P<ranking>.+)/(?P<unit>\d{5})\.npz", "rank", "rank_inputs", "rank"),
    "statistics": (
        r"statistics/(?P<statistics>.+)/statistics\.json",
        "class_statistics",
        "statistics_inputs",
        "statistics",
    ),
    "recover": (r"units/(?P<units>.+)/(?P<unit>\d{5})\.npz", "recover", "recover_inputs", "recover"),
    "synthesize": (r"images/(?P<images>.+)\.zarr/image_set\.json", "synthesize", "synthesize_inputs", "synthesize"),
    "relabel": (r"relabelled/(?P<labels>.+)/(?P<view>\d{5})", "relabel", "relabel_inputs", "relabel"),
    "evaluate": (r"runs/(?P<run>.+)/seed-(?P<seed>\d+)\.json", "evaluate", "evaluate_inputs", "evaluate"),
    "student": (
        r"runs/(?P<run>.+)/students/seed-(?P<seed>\d+)/stage-(?P<stage>\d+)\.safetensors",
        "evaluate",
        "evaluate_inputs",
        "student",
    ),
    "analysis": (r"analyses/(?P<analysis>.+)\.json", "analysis", "analysis_inputs", "analysis"),
    "table": (r"tables/(?P<table>.+)\.csv", "table", "table_inputs", "table"),
    "figure": (r"figures/(?P<figure>[^/]+)\.png", "figure", "figure_inputs", "figure"),
}
OUTCOMES = ("analysis", "table", "figure")
Around = Callable[[str, Path], contextlib.AbstractContextManager[Any]]  # (part of the package, its output)


class Wildcards(dict[str, str]):
    """Snakemake's wildcards: a mapping whose values are attributes too."""

    def __getattr__(self, name: str) -> str:
        return self[name]


@dataclass(frozen=True)
class Chain:
    """A planned experiment whose jobs run here. Finished work below `folder` is used as it is."""

    folder: Path
    plan: Plan
    around: Around = lambda part, file: contextlib.nullcontext()  # entered around every job that is run

    def table(self, name: str) -> dict[str, Any]:
        """Every record behind a table, by the evaluation's name; all jobs that it needs are run."""
        cells = self.plan.tables[name].cells
        return {cell.place["evaluation"]: self.record(cell.run) for cell in cells}

    def record(self, run: str, seed: int = 0) -> dict[str, Any]:
        """The record of a training."""
        return dict(read_json(self.need(self.plan.record(run, seed))))

    def teacher(self) -> Path:
        """The folder of the only teacher."""
        (key,) = self.plan.teachers
        return self.need(self.plan.teacher_dir(key) / "teacher.json").parent

    def images(self) -> Path:
        """The folder of the only image set."""
        (key,) = self.plan.images
        return self.need(self.plan.images_dir(key) / "image_set.json").parent

    def store(self) -> Path:
        """The folder of the only label store, with all planned views."""
        (key,) = self.plan.labels
        for view in range(self.plan.views[key]):
            if not self.plan.marker(key, view).exists():
                self.need(self.plan.ticket(key, view))
        return self.plan.store_dir(key)

    def outputs(self, rule: str) -> list[Path]:
        """What all planned jobs of a rule make: of work in units the last one, whose job makes them all."""
        p = self.plan
        fetched = [teacher for teacher in p.teachers.values() if teacher.source == "torchvision"]
        return {
            "dataset": [p.dataset_dir(key) / "manifest.json" for key in p.datasets],
            "weights": [Path(p.results, "weights", spec.arch, f"{spec.weights}.safetensors") for spec in fetched],
            "squeeze": [p.teacher_dir(key) / "teacher.json" for key in p.teachers],
            "rank": [p.unit(key, p.unit_counts[key] - 1) for key in p.rankings],
            "statistics": [p.statistics_dir(key) / "statistics.json" for key in p.statistics],
            "recover": [p.unit(key, p.unit_counts[key] - 1) for key in p.units],
            "synthesize": [p.images_dir(key) / "image_set.json" for key in p.images],
            "relabel": [p.ticket(key, p.views[key] - 1) for key in p.labels],
            "evaluate": [p.record(key, p.seeds[key] - 1) for key in p.runs],
        }[rule]

    def keys(self) -> set[str]:
        """The keys of all planned work."""
        return set(self.plan.slugs)

    def blocks(self) -> dict[str, int]:
        """How many units of synthesis, label views and seeds of the only such work a job does."""
        p = self.plan
        works = {"units": [*p.rankings, *p.units], "views": p.labels, "seeds": p.runs}
        return {name: p.blocks[key] for name, keys in works.items() for key in keys}

    def need(self, file: Path) -> Path:
        """Make one file of the results and all that it is made from."""
        if file.exists():
            return file
        rule, found = next(
            (rule, match)
            for rule, entry in RULES.items()
            if (match := re.fullmatch(entry[0], str(file.relative_to(self.plan.results))))
        )
        _, script, inputs, work = RULES[rule]
        jobs: Any = RuleJobs(self.plan, str(self.folder / "plan.json"))
        jobs = OutcomeJobs(jobs) if rule in OUTCOMES else jobs
        wildcards = Wildcards(found.groupdict())
        for name in getattr(jobs, inputs)(wildcards) if inputs else ():
            if not name.endswith("plan.json"):
                self.need(Path(name))
        params = getattr(jobs, work)(wildcards) if work else {}
        with self.around(params.get("stage", rule), file):
            _run(script, file, params, wildcards)
        return file


def make_chain(folder: Path, experiment: Mapping[str, Any], datasets: Mapping[str, Any], **config: Any) -> Chain:
    """Write an experiment's YAML below `folder`, read it as a run does, and plan it."""
    known = folder / "config"
    if not known.exists():
        copy_known(known)
    (known / "experiments/case.yaml").write_text(yaml.safe_dump(dict(experiment), sort_keys=False))
    jobs = {"views_per_job": 100, "units_per_job": 100, "seeds_per_job": 1, "workers": 0}
    whole = {"experiments": ["case"], "results": str(folder / "results"), "stores": str(folder / "results/labels")}
    whole |= {"datasets": dict(datasets), "jobs": jobs | config.pop("jobs", {})} | config
    (known / "config.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
    return Chain(folder, make_plan(None, folder))


def _run(script: str, output: Path, work: dict[str, Any], params: Wildcards) -> None:
    """Run one of the workflow's scripts here, with its log left out."""

    @contextlib.contextmanager
    def job(_: Any) -> Iterator[dict[str, Any]]:
        yield work

    output.parent.mkdir(parents=True, exist_ok=True)
    named = Outputs([str(output)])
    source = (ROOT / f"workflow/scripts/{script}.py").read_text()
    real, hald.jobs.job = hald.jobs.job, job  # type: ignore[assignment]
    try:
        exec(compile(source, script, "exec"), {"snakemake": SimpleNamespace(output=named, threads=1, params=params)})
    finally:
        hald.jobs.job = real  # type: ignore[assignment]


class Outputs(list[str]):
    """Snakemake's outputs, some with names."""

    def __getattr__(self, name: str) -> str:
        return self[0] if name in ("csv", "png") else self[0] + ".meaning"


def image_folders(
    root: Path, counts: Mapping[str, int], classes: int, size: int, pixel: Callable[..., np.ndarray] | None = None
) -> Path:
    """A dataset as folders of PNG files: `counts` gives the images of every class in each split.

    Its pixels are a formula, not random numbers, so that they are the same everywhere and for ever.
    """
    for part, (split, count) in enumerate(counts.items()):
        for label in range(classes):
            folder = root / split / f"class{label}"
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                pixels = (pixel or formula)(label, 100 * part + number, size)
                Image.fromarray(pixels).save(folder / f"{number:03d}.png")
    return root


def formula(label: int, number: int, size: int) -> np.ndarray:
    """(size, size, 3) uint8: waves whose direction tells the class and whose phase the image."""
    y, x = np.mgrid[:size, :size] / size
    angle = np.pi * label / 3 + 0.1
    waves = [
        np.sin(6 * (np.cos(angle) * x + np.sin(angle) * y) + 0.7 * number + channel + 0.2 * label * channel)
        + 0.4 * np.cos(5 * x * (channel + 1) - 3 * y * number + label)
        for channel in range(3)
    ]
    return np.rint(127.5 + 85 * np.stack(waves, axis=2)).clip(0, 255).astype(np.uint8)
