"""Settings of images made elsewhere."""

from typing import ClassVar, Literal

from pydantic import Field

from hald.synthesis.settings import BnMode, ImageSet


class Settings(ImageSet):
    """Images made elsewhere."""

    USUAL_BN_MODE: ClassVar[BnMode | None] = None

    method: Literal["external"] = Field(description="Images made elsewhere")
    path: str = Field(description="Folder of the images, one folder per class; variables are expanded")
