"""What a soft-label store is: images, teachers, and how the views were drawn and labelled."""

from dataclasses import dataclass
from typing import Literal

from hald.specs.base import option


@dataclass(frozen=True)
class Labels:
    """Relabel settings, as the config describes them."""

    teacher: str | None = option("Teacher that labels; empty: the experiment's", None)
    batch: int = option("Images per stored batch (CutMix partners and BN statistics stay inside it)", 16, minimum=1)
    mix: Literal["cutmix", "none"] = option("Mixing inside a batch", "cutmix")
    mix_alpha: float = option("Both parameters of the Beta distribution of the mixing share", 1.0, exclusiveMinimum=0)
    codec: Literal["u8"] = option("How logits are stored: one byte per class with one scale per label", "u8")
    seed: int = option("Seed of the views", 42, minimum=0)


@dataclass(frozen=True)
class LabelsSpec:
    """A label store resolved by the plan. How many views it has is not part of it: a store grows."""

    images: str  # key of the image set
    teacher: str  # key of the teacher
    arch: str  # network of the teacher
    classes: int
    count: int  # images in the set
    size: int
    batch: int
    mix: str
    mix_alpha: float
    scale: tuple[float, float]
    ratio: tuple[float, float]
    flip: float
    bn_mode: str
    codec: str
    seed: int
    threads: int

    @property
    def effort(self) -> tuple[str, float]:
        """Kind and amount of work of one view, for estimates: crops through this network."""
        return f"relabel {self.arch}@{self.size}", self.count

    @property
    def view_bytes(self) -> int:
        """About how many bytes a view takes: 0.87 per class (measured, label_store) and 24 of geometry per crop."""
        return round(self.count * (0.87 * self.classes + 24))

    @property
    def batches(self) -> int:
        """Stored batches per view, a short last one included."""
        return -(-self.count // self.batch)
