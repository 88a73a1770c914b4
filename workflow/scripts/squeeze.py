"""Make one teacher."""

from pathlib import Path

from hald.jobs import job

with job(snakemake):
    from hald.device import setup
    from hald.specs.base import from_dict
    from hald.specs.teacher import TeacherSpec
    from hald.squeeze import Places, squeeze

    spec = from_dict(TeacherSpec, snakemake.params.spec)
    weights = snakemake.input.get("weights")
    places = Places(
        dataset=Path(snakemake.input.manifest).parent,
        weights=Path(str(weights)) if weights else None,
        target=Path(snakemake.output[0]).parent,
        partial=Path(snakemake.params.partial),
    )
    squeeze(spec, places, setup(spec.threads), snakemake.params.workers)
