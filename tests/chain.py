"""The whole pipeline in one process: YAML in, files out, without Snakemake.

What a test sees is what a run computes: the config is read from files, the plan is made, and every job gets what the
workflow's rules would give it. Only this file knows how the package arranges that.
"""

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

from conftest import copy_known
from hald.files import read_json
from hald.jobs.job import AnyJob, Job
from hald.pipeline import Plan, make_plan
from hald.plan.graph import Graph, JobId
from hald.plan.stage import Need

Around = Callable[[AnyJob, Path], contextlib.AbstractContextManager[Any]]  # (job, its output)


@dataclass(frozen=True)
class Chain:
    """A planned experiment whose jobs run here. Finished work below `folder` is used as it is."""

    folder: Path
    plan: Plan
    around: Around = lambda job, file: contextlib.nullcontext()  # entered around every job that is run

    def table(self, name: str) -> dict[str, Any]:
        """Every record behind a table, by the evaluation's name; all jobs that it needs are run."""
        cells = self.plan.tables[name].cells
        return {cell.place["evaluation"]: self.record(cell.run) for cell in cells}

    def record(self, run: str, seed: int = 0) -> dict[str, Any]:
        """The record of a training."""
        self.work("evaluate", run)
        return dict(read_json(self.plan.file("evaluate", run, seed)))

    def teacher(self) -> Path:
        """The folder of the only teacher."""
        return self.only("squeeze")

    def images(self) -> Path:
        """The folder of the only image set."""
        return self.only("synthesize")

    def store(self) -> Path:
        """The folder of the only label store, with all planned views."""
        return self.only("relabel")

    def only(self, stage: str) -> Path:
        """The folder of the only work of a stage, all of which is done."""
        (key,) = self.plan.specs[stage]
        return self.work(stage, key)

    def outputs(self, stage: str) -> list[Path]:
        """What all planned work of a stage makes: of work in units the last one."""
        needed = self.plan.needed
        return [self.plan.file(stage, key, needed.get((stage, key), 1) - 1) for key in self.plan.specs[stage]]

    def need(self, file: Path) -> Path:
        """One of those files, and all that it is made from."""
        stage, key = next(
            (stage, key)
            for stage, specs in self.plan.specs.items()
            for key, output in zip(specs, self.outputs(stage), strict=True)
            if output == file
        )
        self.work(stage, key)
        return file

    def keys(self) -> set[str]:
        """The keys of all planned work."""
        return set(self.plan.slugs)

    def blocks(self) -> dict[str, int]:
        """How many units of synthesis, label views and seeds of the only such work a job does."""
        stages = {"rank": "units", "recover": "units", "relabel": "views", "evaluate": "seeds"}
        return {
            name: len(self.plan.blocks[key][0].units)
            for stage, name in stages.items()
            for key in self.plan.specs[stage]
        }

    def work(self, stage: str, key: str) -> Path:
        """Do what is missing of some work, with all that it is made from; its folder."""
        graph = Graph(self.plan)
        for file in graph.outputs(Need(stage, key, self.plan.needed.get((stage, key), 1))):
            self._run(graph, graph.maker(file))
        return self.plan.folder(stage, key)

    def _run(self, graph: Graph, job: JobId) -> None:
        """Run a job and those that it is made from, unless they are done."""
        declared = [Path(file) for file in graph.declared(job)]
        if all(file.exists() for file in declared):
            return
        for name in graph.needs(job.stage, job.key):
            for file in graph.named(job, name):
                self._run(graph, graph.maker(file))
        for file in declared:  # as Snakemake does
            file.parent.mkdir(parents=True, exist_ok=True)
        work = Job.read(json.loads(json.dumps(graph.job(job).plain())))
        with self.around(work, work.units[max(work.units)][0]):
            work.run()
            work.sign()


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
