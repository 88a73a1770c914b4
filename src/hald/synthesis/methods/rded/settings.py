"""Settings of RDED."""

from typing import Literal

from pydantic import Field

from hald.synthesis.settings import Ranked


class Settings(Ranked):
    """The crops that the teacher finds easiest, as mosaics."""

    method: Literal["rded"] = Field(description="RDED")
