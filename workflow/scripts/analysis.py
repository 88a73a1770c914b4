"""Run one analysis of finished students, labels or teachers."""

from pathlib import Path

from hald.jobs import job

with job(snakemake) as work:
    from hald.analysis.lab import Places
    from hald.analysis.run import analyse
    from hald.device import setup
    from hald.files import as_paths
    from hald.specs.analysis import AnalysisSpec
    from hald.specs.base import Identity, from_dict

    spec = from_dict(AnalysisSpec, work["spec"])
    places = Places(
        Path(work["dataset"]),
        as_paths(work["stores"]),
        as_paths(work["teachers"]),
        as_paths(work["students"]),
        work["archs"],
    )
    identity = Identity(work["key"], work["code"], work["code_name"])
    analyse(spec, places, Path(work["partial"]), Path(snakemake.output[0]), setup(spec.threads), identity)
