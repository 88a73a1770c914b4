"""Every rule's work: hald.plan.stages says which function does it."""

from hald.jobs.script import run

run(snakemake)
