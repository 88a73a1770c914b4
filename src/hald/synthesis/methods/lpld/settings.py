"""Settings of LPLD."""

from typing import ClassVar, Literal

from pydantic import Field

from hald.synthesis.settings import Optimised


class Settings(Optimised):
    """Images of a class optimised together, against the BN statistics of that class."""

    SEVERAL_TEACHERS: ClassVar = False

    method: Literal["lpld"] = Field(description="LPLD")
    bn_stats: Literal["exact", "ema0.1"] = Field(
        default="exact", description="Class statistics: exact moments, or the released moving average"
    )
    stats_batch: int = Field(default=256, ge=1, description="Batch of the pass that collects class statistics")
