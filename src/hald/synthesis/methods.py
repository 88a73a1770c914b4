"""Synthesis methods by name."""

from hald.specs.images import ImagesSpec
from hald.synthesis import rded, real
from hald.synthesis.build import Places, Resources

METHODS = {"rded": rded.synthesize, "real": real.synthesize}


def synthesize(spec: ImagesSpec, places: Places, resources: Resources) -> None:
    """Make an image set with the method that its spec names."""
    METHODS[spec.method](spec, places, resources)
