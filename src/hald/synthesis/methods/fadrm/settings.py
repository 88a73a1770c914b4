"""Settings of FADRM."""

from typing import Literal

from pydantic import Field

from hald.synthesis.settings import Optimised, Patched


class Settings(Optimised, Patched):
    """Images optimised in stages from real crops, which are blended in again between the stages."""

    method: Literal["fadrm"] = Field(description="FADRM, FADRM+")
    alpha: float = Field(
        default=0.5, ge=0, le=1, description="Share of the optimised image when the patch is blended in again"
    )
