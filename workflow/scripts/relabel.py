"""Label the missing views of one block of a store."""

from pathlib import Path

from hald.jobs import job

with job(snakemake) as work:
    from hald.device import setup
    from hald.labels.relabel import Places, relabel
    from hald.specs.base import Identity, from_dict
    from hald.specs.labels import LabelsSpec

    spec = from_dict(LabelsSpec, work["spec"])
    places = Places(
        images=Path(work["images"]),
        teachers=[Path(folder) for folder in work["teachers"]],
        store=Path(work["store"]),
    )
    first, last = work["views"]
    identity = Identity(work["key"], work["code"], work["code_name"])
    relabel(spec, places, range(first, last + 1), work["floor"], setup(spec.threads), identity)
