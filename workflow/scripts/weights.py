"""Fetch torchvision weights once."""

from pathlib import Path

from hald.jobs import job

with job(snakemake):
    from hald.models.weights import fetch_torchvision

    fetch_torchvision(snakemake.params.arch, snakemake.params.weights, Path(snakemake.output[0]))
