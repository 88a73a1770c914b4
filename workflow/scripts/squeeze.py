"""Make one teacher."""

from pathlib import Path

from hald.jobs import job

with job(snakemake) as work:
    from hald.device import setup
    from hald.specs.base import from_dict
    from hald.specs.teacher import TeacherSpec
    from hald.squeeze import Places, squeeze

    spec = from_dict(TeacherSpec, work["spec"])
    places = Places(
        dataset=Path(work["dataset"]),
        weights=Path(work["weights"]) if work["weights"] else None,
        target=Path(snakemake.output[0]).parent,
        partial=Path(work["partial"]),
    )
    squeeze(spec, places, setup(spec.threads), work["workers"])
