"""Prepare one dataset."""

from pathlib import Path

from hald.jobs import job

with job(snakemake):
    from hald.data.prepare import prepare
    from hald.specs.base import from_dict
    from hald.specs.dataset import DatasetSpec

    spec = from_dict(DatasetSpec, snakemake.params.spec)
    prepare(spec, Path(snakemake.output[0]).parent, Path(snakemake.params.partial), snakemake.threads)
