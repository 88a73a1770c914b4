"""Figures: from a table's cells or from the results of analyses to a drawing.

What draws a kind of figure has its name: it is a module of `figures`, or the `figure` of the analysis that it shows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hald import registry
from hald.errors import UserError
from hald.files import read_json, write_json
from hald.jobs.job import Job
from hald.report.cells import cell_rows, sources
from hald.report.spec import FigureSpec, TableSpec
from hald.report.style import save

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


def make(job: Job[FigureSpec]) -> None:
    """Draw a figure in all its formats and, last, write what it means."""
    spec = job.spec
    cells = spec.table.cells if spec.table else ()
    files = sources(job, [*spec.analyses, *(cell.run for cell in cells if cell.value is not None)])
    write_figure(Material(spec, files), job.folder / spec.id)
    write_json(job.units[0][0], job.meaning)


def write_figure(material: Material, stem: Path) -> list[Path]:
    """Draw and write `stem`.png, .svg and .pdf."""
    drawers = registry.plugins("hald.analysis.kinds", "figure") | registry.plugins("hald.report.figures", "figure")
    return save(drawers[material.spec.kind].draw(material), stem)
