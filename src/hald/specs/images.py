"""What a distilled image set is: a method and its parameters."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ImagesSpec:
    """An image set resolved by the plan."""

    method: str
    dataset: str  # key of the dataset
    teacher: str | None  # key of the teacher, where the method has one
    ipc: int
    size: int
    resize: int | None
    mipc: int
    num_crop: int
    factor: int
    crop_scale: tuple[float, float]
    seed: int
    threads: int

    @property
    def effort(self) -> tuple[str, float]:
        """Kind and amount of work, for estimates: crops that are scored, or images that are copied, per class."""
        return f"synthesis {self.method}@{self.size} {self.dataset}", self.mipc * self.num_crop or self.ipc

    @property
    def per_class(self) -> int:
        """Real images that a class must have for this set."""
        return self.ipc * self.factor**2 if self.method == "rded" else self.ipc
