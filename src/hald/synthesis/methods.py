"""Synthesis methods by name."""

from hald.specs.images import ImagesSpec, UnitsSpec
from hald.synthesis import collect, external, fadrm, lpld, patches, rded, real, recover, sre2l
from hald.synthesis.build import Places, Resources

SETS = {
    "rded": rded.synthesize,
    "patches": patches.synthesize,
    "real": real.synthesize,
    "external": external.synthesize,
    "sre2l": collect.synthesize,
    "lpld": collect.synthesize,
    "fadrm": collect.synthesize,
}
UNITS = {"sre2l": sre2l.problems, "lpld": lpld.problems, "fadrm": fadrm.problems}


def synthesize(spec: ImagesSpec, places: Places, resources: Resources) -> None:
    """Make an image set with the method that its spec names."""
    SETS[spec.method](spec, places, resources)


def optimise_units(spec: UnitsSpec, places: recover.Places, units: range, resources: Resources) -> None:
    """Compute optimised units of the method that their spec names."""
    recover.recover(spec, UNITS[spec.method], places, units, resources)
