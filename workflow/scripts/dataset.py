"""Prepare one dataset."""

from pathlib import Path

from hald.jobs import job

with job(snakemake) as work:
    from hald.data.dispatch import SOURCES
    from hald.data.prepare import prepare
    from hald.specs.base import from_dict
    from hald.specs.dataset import DatasetSpec

    spec = from_dict(DatasetSpec, work["spec"])
    prepare(spec, SOURCES[spec.source](spec), Path(work["dataset"]), Path(work["partial"]), snakemake.threads)
