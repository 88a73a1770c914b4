"""Settings of real images."""

from typing import Literal

from pydantic import Field

from hald.synthesis.settings import Drawn


class Settings(Drawn):
    """A random real subset."""

    method: Literal["real"] = Field(description="Real images")
