"""What an evaluation training is: stages, losses, optimiser, and which part of a label store it may use."""

from dataclasses import dataclass


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
    top_k: int | None
    threads: int

    @property
    def slc(self) -> float:
        """Soft labels per class that the pool really holds."""
        count = self.ipc * self.classes
        views, rest = divmod(self.pool, -(-count // self.batch))
        return round((views * count + min(rest * self.batch, count)) / self.classes, 2)

    @property
    def effort(self) -> tuple[str, float]:
        """Kind and amount of work of one seed, for estimates: images through this network."""
        return f"evaluate {self.arch}@{self.size}", self.epochs * self.ipc * self.classes

    @property
    def epochs(self) -> int:
        """Length of the training."""
        return sum(stage.epochs for stage in self.stages)
