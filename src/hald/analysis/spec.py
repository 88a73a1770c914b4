"""What an analysis is: which students, teachers and images it looks at, and its settings."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Subject:
    """What is looked at: a teacher, or a student after a stage of its training, and the label store it belongs to."""

    place: dict[str, Any]  # dataset, images, ipc, slc, student, evaluation, stage: what tables and figures call it
    labels: str  # key of the label store, which has the images and their teacher too
    run: str | None = None  # key of a run whose student is meant
    stage: int = 0  # stage of the run
    teacher: str | None = None  # key of a teacher

    @property
    def views(self) -> int:
        """Label views that are read of the store."""
        slc = self.place.get("slc")
        return -(-int(slc) // int(self.place["ipc"])) if slc else 1


@dataclass(frozen=True)
class AnalysisSpec:
    """One analysis of some subjects. `options` are the settings of its kind."""

    kind: str
    dataset: str  # key of the dataset
    subjects: tuple[Subject, ...]
    reference: Subject | None  # what they are compared with
    options: dict[str, Any]
    threads: int

    @property
    def looked_at(self) -> tuple[Subject, ...]:
        """All subjects, and what they are compared with."""
        return (*self.subjects, self.reference) if self.reference else self.subjects

    @property
    def effort(self) -> tuple[str, float]:
        """Kind and amount of work, for estimates."""
        return f"analysis {self.kind}", 1
