"""Collect a teacher's class-wise BN statistics."""

from pathlib import Path

from hald.jobs import job

with job(snakemake) as work:
    from hald.device import setup
    from hald.specs.base import from_dict
    from hald.specs.images import StatisticsSpec
    from hald.synthesis.build import Resources
    from hald.synthesis.statistics import make_statistics

    spec = from_dict(StatisticsSpec, work["spec"])
    resources = Resources(setup(spec.threads), work["workers"], work["floor"])
    target = Path(snakemake.output[0]).parent
    make_statistics(spec, Path(work["dataset"]), Path(work["teachers"][0]), target, resources)
