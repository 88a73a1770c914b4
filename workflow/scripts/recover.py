"""Optimise the missing units of one block."""

from pathlib import Path

from hald.jobs import job

with job(snakemake) as work:
    from hald.device import setup
    from hald.specs.base import from_dict
    from hald.specs.images import UnitsSpec
    from hald.synthesis.build import Resources
    from hald.synthesis.methods import optimise_units
    from hald.synthesis.recover import Places

    spec = from_dict(UnitsSpec, work["spec"])
    places = Places(
        dataset=Path(work["dataset"]),
        teachers=[Path(folder) for folder in work["teachers"]],
        made_from=Path(work["made_from"]) if work["made_from"] else None,
        folder=Path(work["folder"]),
    )
    first, last = work["units"]
    resources = Resources(setup(spec.threads), work["workers"], work["floor"])
    optimise_units(spec, places, range(first, last + 1), resources)
