"""Figures by kind: from a table's cells or from the results of analyses to a drawing."""

import base64
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from hald.errors import UserError
from hald.files import read_json, write_json
from hald.jobs.job import Job
from hald.report.figure_spec import FigureSpec
from hald.report.figures import accuracy, analysis, drift
from hald.report.spec import TableSpec
from hald.report.style import save
from hald.report.tables import cell_rows, epoch_steps, sources

Found = dict[str, Any]


@dataclass(frozen=True)
class Material:
    """What a figure is drawn from: its spec, and by key folders of run records and files of analyses."""

    spec: FigureSpec
    sources: dict[str, Path]

    @property
    def table(self) -> TableSpec:
        """The table whose cells are drawn."""
        assert self.spec.table is not None
        return self.spec.table

    def points(self) -> list[Found]:
        """The cells of the table, with what they are about and what was found."""
        rows = cell_rows(self.table, self.sources).to_dict("records")
        return [
            cell.place | {str(name): value for name, value in row.items() if name not in cell.place}
            for cell, row in zip(self.table.cells, rows, strict=True)
        ]

    def records(self) -> dict[str, list[Found]]:
        """Result records of the seeds of every evaluation; the table has to leave one run for each."""
        runs: dict[str, str] = {}
        for cell in self.table.cells:
            name = cell.place["evaluation"]
            if runs.setdefault(name, cell.run) != cell.run:
                raise UserError(
                    f"figure '{self.spec.id}' has two runs of '{name}'; choose with `where`, e.g. {{images: rded}}"
                )
        paths = {
            name: [self.sources[run] / f"seed-{seed}.json" for seed in range(self.table.seeds)]
            for name, run in runs.items()
        }
        return {name: [read_json(path) for path in seeds if path.is_file()] for name, seeds in paths.items()}

    def lengths(self) -> list[Found]:
        """The points with the steps of their trainings; `hald_900`, if of 900 epochs, is `hald` in another length."""
        points = []
        for cell, point in zip(self.table.cells, self.points(), strict=True):
            record = next(self.sources[cell.run].glob("seed-*.json"), None)
            if record is not None:
                spec = read_json(record)["spec"]
                method = point["evaluation"].removesuffix(f"_{spec['epochs']}")
                points.append(point | {"evaluation": method, "steps": spec["epochs"] * epoch_steps(spec)})
        return points

    def subjects(self) -> Iterator[tuple[Found, Found]]:
        """What each subject of the analyses is, and what was found about it."""
        for key in self.spec.analyses:
            for subject in read_json(self.sources[key])["subjects"]:
                yield subject["place"], subject

    def by(self, field: str) -> dict[str, Found]:
        """What was found, by one of the subjects' names."""
        found: dict[str, Found] = {}
        for place, subject in self.subjects():
            if place[field] in found:
                raise UserError(
                    f"figure '{self.spec.id}' has two subjects with {field} '{place[field]}'; draw them apart"
                )
            found[place[field]] = subject
        return found


def _landscape(m: Material) -> Figure:
    grids = {(split, name): found[split] for split in ("train", "test") for name, found in m.by("evaluation").items()}
    return analysis.landscapes(grids)


def _embedding(m: Material) -> Figure:
    found = m.by("evaluation")
    return analysis.embeddings(found, next(iter(found.values()))["classes"])


def _drift(m: Material) -> Figure:
    examples: list[Any] = []
    images: list[Any] = []
    crops: list[Any] = []
    for _, found in m.subjects():
        examples += found["examples"]
        images += [as_pixels(text) for text in found["images"]]
        crops += [[as_pixels(text) for text in row] for row in found["crops"]]
    return drift.drift_examples(examples, images, crops)


def as_pixels(text: str) -> Any:
    """(H, W, 3) uint8 of a picture in a result file."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB"))


KINDS: dict[str, Callable[[Material], Figure]] = {
    "accuracy_over_slc": lambda m: accuracy.accuracy_over(m.points(), "slc_effective"),
    "accuracy_over_bytes": lambda m: accuracy.accuracy_over(m.points(), "label_bytes"),
    "accuracy_over_steps": lambda m: accuracy.accuracy_over(m.lengths(), "steps"),
    "gain": lambda m: accuracy.gain(m.points()),
    "learning_curves": lambda m: accuracy.learning_curves(m.records()),
    "lvsd": lambda m: analysis.lvsd_histogram(
        {name: [found["paper"], found["varied"]] for name, found in m.by("student").items()}
    ),
    "gradients": lambda m: analysis.gradient_similarity(m.by("images")),
    "updates": lambda m: analysis.update_sizes(m.by("evaluation")),
    "landscape": _landscape,
    "embedding": _embedding,
    "variance": lambda m: analysis.variance_law({name: found["variance"] for name, found in m.by("images").items()}),
    "drift": _drift,
}


def make(job: Job[FigureSpec]) -> None:
    """Draw a figure in all its formats and, last, write what it means."""
    spec = job.spec
    cells = spec.table.cells if spec.table else ()
    files = sources(job, [*spec.analyses, *(cell.run for cell in cells if cell.value is not None)])
    write_figure(Material(spec, files), job.folder / spec.id)
    write_json(job.units[0][0], job.meaning)


def write_figure(material: Material, stem: Path) -> list[Path]:
    """Draw and write `stem`.png, .svg and .pdf."""
    return save(KINDS[material.spec.kind](material), stem)
