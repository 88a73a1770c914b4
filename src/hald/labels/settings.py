"""Relabelling as the config describes it."""

from typing import Literal

from pydantic import Field

from hald.settings import Section

CodecName = Literal["u8", "u4", "u2", "i16", "f16", "topk"]


class Labels(Section):
    """Relabel settings, as the config describes them."""

    teachers: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="Teachers that label; empty: the experiment's own one"
    )
    weights: tuple[float, ...] | None = Field(
        default=None, description="Weight of each teacher's logits; empty: the same for all"
    )
    batch: int = Field(
        default=16, ge=2, description="Images per stored batch (CutMix partners and BN statistics stay inside it)"
    )
    mix: Literal["cutmix", "mixup", "none"] = Field(default="cutmix", description="Mixing inside a batch")
    mix_alpha: float = Field(
        default=1.0, gt=0, description="Both parameters of the Beta distribution of the mixing share"
    )
    codec: CodecName = Field(
        default="u8",
        description=(
            "How logits are stored: in 208, 15 or 3 steps between a label's smallest and largest, in fixed fine steps "
            "(two bytes), in half precision, or only the largest few"
        ),
    )
    top_k: int | None = Field(
        default=None, ge=1, description="Logits kept per label, with `codec: topk` only; empty: 100"
    )
    seed: int = Field(default=42, ge=0, description="Seed of the views")
