"""What the parts of the plan's builder (hald.plan.images, hald.plan.outcomes) may ask of the whole."""

from typing import Any, Protocol

from hald.plan.model import Plan
from hald.plan.paper import PaperTables
from hald.plan.settings import Dataset, Experiment
from hald.specs.run import RunSpec


class Builder(Protocol):
    """What hald.plan.build gives: the experiment and its work, by name."""

    @property
    def plan(self) -> Plan: ...  # noqa: D102
    @property
    def experiment(self) -> Experiment: ...  # noqa: D102
    @property
    def paper(self) -> PaperTables: ...  # noqa: D102
    @property
    def where(self) -> str: ...  # noqa: D102
    def settings(self) -> Dataset: ...  # noqa: D102
    def dataset(self) -> str: ...  # noqa: D102
    def teacher(self, name: str) -> str: ...  # noqa: D102
    def labels(self, images: str, ipc: int) -> str: ...  # noqa: D102
    def run(self, images: str, ipc: int, slc: int, student: str, evaluation: str) -> str: ...  # noqa: D102
    def run_spec(self, images: str, ipc: int, slc: int, student: str, evaluation: str) -> RunSpec: ...  # noqa: D102
    def add(self, specs: dict[str, Any], stage: str, spec: Any, slug: str) -> str: ...  # noqa: D102
