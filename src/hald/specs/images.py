"""What a distilled image set is: a method and its parameters."""

from dataclasses import dataclass
from typing import Literal

from hald.specs.base import option


@dataclass(frozen=True)
class Images:
    """One way of making distilled images, as the config describes it."""

    method: Literal["rded", "real"] = option("RDED's crop selection, or a random real subset")
    teacher: str | None = option("Teacher that scores the images; empty: the experiment's", None)
    mipc: int = option("RDED: images per class that are looked at", 300, minimum=1)
    num_crop: int = option("RDED: random crops scored per image", 5, minimum=1)
    factor: int = option("RDED: each image is a factor x factor mosaic of crops", 1, minimum=1)
    crop_scale: tuple[float, float] = option("RDED: area range of its crops", (0.08, 1.0))
    bn_mode: Literal["batch", "running"] | None = option(
        "BN statistics of the teacher while these images are labelled: of the batch (BSSL) or the running ones; "
        "empty: running for rded and real, as released",
        None,
    )
    seed: int = option("Seed of the random choices", 0, minimum=0)


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
        """Kind and amount of work, for estimates: distilled images per class."""
        return f"synthesis {self.method}@{self.size} {self.dataset}", self.ipc

    @property
    def per_class(self) -> int:
        """Real images that a class must have for this set."""
        return self.ipc * self.factor**2 if self.method == "rded" else self.ipc
