"""Train the students of one setting, one per seed."""

from pathlib import Path

from hald.jobs import job

with job(snakemake) as work:
    from hald.device import setup
    from hald.specs.base import Identity, from_dict
    from hald.specs.run import RunSpec
    from hald.train.run import Places, evaluate

    spec = from_dict(RunSpec, work["spec"])
    places = Places(
        dataset=Path(work["dataset"]),
        store=Path(work["store"]),
        records=Path(work["records"]),
        partial=Path(work["partial"]),
        kept=work["kept"],
    )
    evaluate(spec, work["seeds"], places, setup(spec.threads), Identity(work["key"], work["code"], work["code_name"]))
