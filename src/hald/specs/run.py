"""What an evaluation training is: stages, losses, optimiser, and which part of a label store it may use."""

from dataclasses import dataclass
from typing import Literal

from hald.specs.base import option

Order = Literal["soft", "hard", "soft-hard-soft", "hard-soft", "soft-hard", "hard-soft-hard"]


@dataclass(frozen=True)
class Evaluation:
    """One training protocol, as the config describes it (a value per SLC where it says so)."""

    order: Order = option("Order of the stages; the first soft (or hard) part of two is the smaller half", "soft")
    epochs: int = option("Training epochs over all stages", 300, minimum=1)
    hard_epochs: int | dict[int, int] = option(
        "Epochs of hard-label training, or a map from SLC to them (an SLC takes the nearest entry at or below it)", 0
    )
    lr: float = option("Initial learning rate", 0.001, exclusiveMinimum=0)
    eta: float = option("Divides the phase of the cosine schedule: 1 ends at zero, 2 at half the rate", 2.0, minimum=1)
    weight_decay: float = option("AdamW weight decay on weights with more than one dimension", 0.01, minimum=0)
    temperature: float = option("Temperature of the soft labels, teacher and student", 20.0, exclusiveMinimum=0)
    kd_scale: Literal["none", "T2"] = option("Scale of the soft loss: as it is, or times T squared", "none")
    handover: Literal["carry", "reset"] = option(
        "AdamW's state at a stage boundary: carried over (as released) or cleared", "carry"
    )
    smoothing: float = option("Label smoothing of the hard stage", 0.8, minimum=0, maximum=1)
    sampling: Literal["permutation", "replacement"] = option(
        "How stored batches are drawn: each once per pass over the pool, or with replacement", "permutation"
    )
    slc_rounding: Literal["batches", "floor"] = option(
        "An SLC that is no multiple of the IPC: a prefix of whole batches of one more view, or whole views only",
        "batches",
    )


@dataclass(frozen=True)
class Student:
    """One student network, as the config describes it."""

    arch: str = option("Network, named as for teachers")
    lr: float | None = option("Learning rate for this student; empty: the evaluation's", None, exclusiveMinimum=0)


@dataclass(frozen=True)
class Stage:
    """A stretch of epochs of one kind."""

    kind: str  # soft or hard
    epochs: int


@dataclass(frozen=True)
class RunSpec:
    """One training run but for its seed."""

    dataset: str  # key of the dataset (its test split)
    labels: str  # key of the label store
    arch: str
    ipc: int
    slc: int
    pool: int  # stored batches that may be used: a prefix of the store
    batch: int
    classes: int
    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    scale: tuple[float, float]
    ratio: tuple[float, float]
    flip: float
    stages: tuple[Stage, ...]
    lr: float
    eta: float
    weight_decay: float
    temperature: float
    kd_scale: str
    handover: str
    smoothing: float
    sampling: str
    threads: int

    @property
    def effort(self) -> tuple[str, float]:
        """Kind and amount of work of one seed, for estimates: images through this network."""
        return f"evaluate {self.arch}@{self.size}", self.epochs * self.ipc * self.classes

    @property
    def epochs(self) -> int:
        """Length of the training."""
        return sum(stage.epochs for stage in self.stages)
