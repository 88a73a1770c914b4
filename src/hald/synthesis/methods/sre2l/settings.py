"""Settings of SRe2L and SRe2L++."""

from typing import Literal

from pydantic import Field

from hald.synthesis.settings import Optimised, Patched


class Settings(Optimised, Patched):
    """Images optimised against a teacher's BN statistics, from noise (SRe2L) or from real crops (SRe2L++)."""

    method: Literal["sre2l"] = Field(description="SRe2L, SRe2L++")
    init: Literal["gaussian", "patches"] = Field(
        default="gaussian",
        description="SRe2L starts from noise, SRe2L++ from patches, for which the keys of crops are",
    )
