"""Rank the missing classes of one block."""

from pathlib import Path

from hald.jobs import job

with job(snakemake) as work:
    from hald.device import setup
    from hald.specs.base import from_dict
    from hald.specs.images import RankingSpec
    from hald.synthesis.build import Resources
    from hald.synthesis.ranking import rank

    spec = from_dict(RankingSpec, work["spec"])
    first, last = work["units"]
    resources = Resources(setup(spec.threads), work["workers"], work["floor"])
    places = (Path(work["dataset"]), Path(work["teachers"][0]), Path(work["folder"]))
    rank(spec, *places, range(first, last + 1), resources)
