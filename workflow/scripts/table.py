"""Write one results table in all its formats."""

from pathlib import Path

from hald.jobs import job

with job(snakemake) as work:
    from hald.files import write_json
    from hald.specs.base import from_dict
    from hald.specs.table import TableSpec
    from hald.tables import write_table

    spec = from_dict(TableSpec, work["spec"])
    folders = {run: Path(folder) for run, folder in work["folders"].items()}
    write_table(spec, folders, Path(snakemake.output[1]).with_suffix(""))
    write_json(Path(snakemake.output[0]), work["meaning"])
