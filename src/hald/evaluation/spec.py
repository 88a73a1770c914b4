"""What an evaluation training is: phases, losses, optimiser, and which part of a label store it may use."""

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Phase:
    """A stretch of epochs of one kind."""

    kind: str  # soft or hard
    epochs: int | None  # None: until its plateau (adaptive schedule), the last one to the end


@dataclass(frozen=True)
class LossSpec:
    """The loss of the soft phases: a name of hald.evaluation.losses and its own settings."""

    name: str
    options: dict[str, Any]


@dataclass(frozen=True)
class AdaptiveSpec:
    """When the adaptive schedule leaves a phase, and what it looks at."""

    window: int  # epochs
    accuracy: float  # points per epoch
    entropy: float  # share of ln C
    shortest: int  # epochs of any phase
    held_out: int  # images per class that are never trained on
    divergence: float | None = None  # share; takes the place of the accuracy


@dataclass(frozen=True)
class RunSpec:
    """One training run but for its seed. `origin` says of each published setting whose value it is."""

    NOT_IDENTITY: ClassVar = ("origin",)

    dataset: str  # key of the dataset (its test split)
    labels: str  # key of the label store
    arch: str
    ipc: int
    pool: int  # stored batches that may be used: a prefix of the store; 0 where hard labels alone are
    batch: int
    classes: int
    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    scale: tuple[float, float]
    ratio: tuple[float, float]
    flip: float
    stages: tuple[Phase, ...]
    epochs: int
    adaptive: AdaptiveSpec | None
    lr: float
    eta: float
    weight_decay: float
    beta2: float
    loss: LossSpec
    handover: str
    smoothing: float
    sampling: str
    top_k: int | None
    measure_every: int  # epochs
    precision: str
    compile: str
    threads: int
    origin: dict[str, str]
    # What came later has the value that trainings without it had.
    hard_temperature: float | None = 1.0  # None: where the teacher's labels are as confident as smoothed class labels

    @property
    def schedule(self) -> str:
        """Its name in hald.evaluation.schedules."""
        return "adaptive" if self.adaptive else "fixed"

    @property
    def plugins(self) -> tuple[str, ...]:
        """The parts of the package that it alone uses: its schedule, and its loss if it has a soft phase."""
        is_soft = any(phase.kind == "soft" for phase in self.stages)
        return (*((f"loss.{self.loss.name}",) if is_soft else ()), f"schedule.{self.schedule}")

    @property
    def slc(self) -> float:
        """Soft labels per class that the pool really holds."""
        count = self.ipc * self.classes
        views, rest = divmod(self.pool, self.batches)
        return round((views * count + min(rest * self.batch, count)) / self.classes, 2)

    @property
    def batches(self) -> int:
        """Stored batches per view, a short last one included."""
        return -(-self.ipc * self.classes // self.batch)

    @property
    def steps(self) -> int:
        """Optimiser steps of one seed."""
        return self.epochs * self.batches

    @property
    def effort(self) -> tuple[str, float]:
        """Kind and amount of work of one seed, for estimates: images through this network."""
        return f"evaluate {self.arch}@{self.size}", self.epochs * self.ipc * self.classes
