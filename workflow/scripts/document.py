"""Write a document from its template and archived results."""

from pathlib import Path

from hald.jobs import job

with job(snakemake):
    from hald.document import write_document

    write_document(Path(snakemake.input.archive), Path(snakemake.input.template), Path(snakemake.output[0]))
