"""Write one results table in all its formats."""

from pathlib import Path

from hald.jobs import job

with job(snakemake) as work:
    from hald.files import as_paths, write_json
    from hald.specs.base import from_dict
    from hald.specs.table import TableSpec
    from hald.tables import write_table

    sources = as_paths(work["folders"] | work["analyses"])
    write_table(from_dict(TableSpec, work["spec"]), sources, Path(snakemake.output.csv).with_suffix(""))
    write_json(Path(snakemake.output.meaning), work["meaning"])
