"""Write a document from its template and archived results."""

from pathlib import Path

from hald.jobs import job

with job(snakemake):
    from hald.document import write_document

    archive, printed, template = map(Path, (snakemake.input.archive, snakemake.input.printed, snakemake.input.template))
    write_document(archive, printed, template, Path(snakemake.output[0]))
