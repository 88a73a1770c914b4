"""Draw the preview sheet of an image set, or of the images in a label store."""

from pathlib import Path

from hald.jobs import job

with job(snakemake) as work:
    from hald.files import write_atomic
    from hald.synthesis.preview import draw_sheet

    sheet = draw_sheet(Path(work["folder"]), work["spec"]["ipc"])
    write_atomic(Path(snakemake.output[0]), lambda temporary: sheet.save(temporary, "png"))
