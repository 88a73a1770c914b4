"""Put one distilled image set together."""

from pathlib import Path

from hald.jobs import job

with job(snakemake) as work:
    from hald.device import setup
    from hald.specs.base import from_dict
    from hald.specs.images import ImagesSpec
    from hald.synthesis.build import Places, Resources
    from hald.synthesis.methods import synthesize

    spec = from_dict(ImagesSpec, work["spec"])
    places = Places(
        dataset=Path(work["dataset"]),
        teachers=[Path(folder) for folder in work["teachers"]],
        made_from=Path(work["made_from"]) if work["made_from"] else None,
        target=Path(snakemake.output[0]).parent,
        partial=Path(work["partial"]),
    )
    synthesize(spec, places, Resources(setup(spec.threads), work["workers"], work["floor"]))
