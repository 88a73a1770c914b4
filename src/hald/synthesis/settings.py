"""Image sets as the config describes them: what all methods take, and what some of them share.

A method's own settings are in its folder: `methods/<name>/settings.py`.
"""

from typing import ClassVar, Literal

from pydantic import Field

from hald.labels.settings import CodecName
from hald.settings import Part, Section
from hald.synthesis.spec import Recover

BnMode = Literal["batch", "running"]


class ImageSet(Section):
    """What every method takes."""

    USUAL_BN_MODE: ClassVar[BnMode | None] = "running"

    method: str = Field(description="How the images are made. A `preset` gives it too")
    preset: str | None = Field(
        default=None,
        description=(
            "Settings to start from, by name in config/presets.yaml, e.g. `fadrm/cifar100`; keys given beside it win"
        ),
    )
    teacher: str | None = Field(
        default=None, description="Teacher that scores or classifies the images; empty: the experiment's"
    )
    bn_mode: BnMode | None = Field(
        default=None,
        description=(
            "BN statistics of the teacher while these images are labelled: of the batch (BSSL) or the running ones; "
            "empty: batch for sre2l, lpld and fadrm and running for rded, as released, running for patches and real; "
            "external has to say"
        ),
    )
    codec: CodecName | None = Field(
        default=None, description="How the logits of its labels are stored; empty: as `labels` says"
    )
    top_k: int | None = Field(default=None, ge=1, description="With `codec: topk`: logits kept per label of this set")


class Drawn(ImageSet):
    """Methods that draw random numbers."""

    seed: int = Field(default=0, ge=0, description="Seed of the random choices")


class Ranked(Drawn):
    """Methods that choose real crops by the teacher's loss on them."""

    mipc: int = Field(default=300, ge=1, description="Images per class that are looked at for crops")
    num_crop: int = Field(default=5, ge=1, description="Random crops scored per image")
    factor: int = Field(default=1, ge=1, description="Each image is a factor x factor mosaic of crops")
    crop_scale: tuple[Part, Part] = Field(default=(0.08, 1.0), description="Area range of the crops")


class Patched(Ranked):
    """Methods that take, or start from, crops of a chosen difficulty."""

    difficulty: Literal["easy", "medium", "hard"] = Field(
        default="medium", description="Which crops: lowest, middle or highest ranks of the teacher's loss"
    )


class Optimised(Drawn):
    """Methods that optimise pixels."""

    SEVERAL_TEACHERS: ClassVar = True
    USUAL_BN_MODE: ClassVar[BnMode | None] = "batch"

    teachers: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Several teachers, used in turn, one per iteration (FADRM+); empty: `teacher`",
    )
    batch: int = Field(
        default=100,
        ge=1,
        description="Images optimised together: one of each of so many classes (SRe2L, FADRM), or of one class (LPLD)",
    )
    recover: Recover = Field(default=Recover(), description="The optimisation")
