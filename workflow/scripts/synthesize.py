"""Make one distilled image set."""

from pathlib import Path

from hald.jobs import job

with job(snakemake):
    from hald.device import setup
    from hald.specs.base import from_dict
    from hald.specs.images import ImagesSpec
    from hald.synthesis.imageset import Places, Resources
    from hald.synthesis.methods import synthesize

    spec = from_dict(ImagesSpec, snakemake.params.spec)
    teacher = snakemake.input.get("teacher")
    places = Places(
        dataset=Path(snakemake.input.manifest).parent,
        teacher=Path(str(teacher)).parent if teacher else None,
        target=Path(snakemake.output[0]).parent,
        partial=Path(snakemake.params.partial),
    )
    synthesize(spec, places, Resources(setup(spec.threads), snakemake.params.workers, snakemake.params.floor))
