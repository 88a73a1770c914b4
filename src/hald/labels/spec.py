"""What a soft-label store is: images, teachers, and how the views were drawn and labelled."""

from dataclasses import dataclass

from hald.labels.codec import codec_of


@dataclass(frozen=True)
class LabelsSpec:
    """A label store resolved by the plan. How many views it has is not part of it: a store grows."""

    images: str  # key of the image set
    teachers: tuple[str, ...]  # keys of the teachers
    weights: tuple[float, ...]  # of their logits
    arch: str  # networks of the teachers
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
    top_k: int
    seed: int
    threads: int

    @property
    def effort(self) -> tuple[str, float]:
        """Kind and amount of work of one view, for estimates: crops through this network."""
        return f"relabel {self.arch}@{self.size}", self.count

    @property
    def view_bytes(self) -> int:
        """About how many bytes a view takes: those per class or kept logit, and 14 of geometry per crop."""
        codec = codec_of(self.codec)
        return round(self.count * (codec.bytes_per_value * codec.width(self.classes, self.top_k) + 14))

    @property
    def batches(self) -> int:
        """Stored batches per view, a short last one included."""
        return -(-self.count // self.batch)
