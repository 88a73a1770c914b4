"""Settings of patches."""

from typing import Literal

from pydantic import Field

from hald.synthesis.settings import Patched


class Settings(Patched):
    """Real crops of a chosen difficulty."""

    method: Literal["patches"] = Field(description="Real crops")
