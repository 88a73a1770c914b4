"""Train the students of one setting, one per seed."""

from pathlib import Path

from hald.jobs import job

with job(snakemake):
    from hald.device import setup
    from hald.specs.base import from_dict
    from hald.specs.run import RunSpec
    from hald.train.run import Places, evaluate

    spec = from_dict(RunSpec, snakemake.params.spec)
    places = Places(
        dataset=Path(snakemake.input.manifest).parent,
        store=Path(snakemake.params.store),
        records=Path(snakemake.output[0]).parent,
        partial=Path(snakemake.params.partial),
    )
    evaluate(spec, list(snakemake.params.seeds), places, setup(spec.threads))
