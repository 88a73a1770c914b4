"""Draw one figure in all its formats."""

from pathlib import Path

from hald.jobs import job

with job(snakemake) as work:
    from hald.figures import Material, write_figure
    from hald.files import as_paths, write_json
    from hald.specs.base import from_dict
    from hald.specs.figure import FigureSpec

    material = Material(from_dict(FigureSpec, work["spec"]), as_paths(work["folders"]), as_paths(work["analyses"]))
    write_figure(material, Path(snakemake.output.png).with_suffix(""))
    write_json(Path(snakemake.output.meaning), work["meaning"])
