"""Label the missing views of one block of a store."""

from pathlib import Path

from hald.jobs import job

with job(snakemake):
    from hald.device import setup
    from hald.labels.relabel import Places, relabel
    from hald.specs.base import from_dict
    from hald.specs.labels import LabelsSpec

    spec = from_dict(LabelsSpec, snakemake.params.spec)
    places = Places(
        images=Path(snakemake.params.images),
        teacher=Path(snakemake.params.teacher),
        store=Path(snakemake.output[0]).parents[1],
    )
    first, last = snakemake.params.block
    relabel(spec, places, range(first, last + 1), snakemake.params.floor, setup(spec.threads))
