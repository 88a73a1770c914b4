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


@dataclass(frozen=True)
class AnalysisSpec:
    """One analysis of some subjects. `options` are the settings of its kind."""

    kind: str
    dataset: str  # key of the dataset
    subjects: tuple[Subject, ...]
    reference: Subject | None  # what they are compared with
    options: dict[str, Any]
    threads: int
