# hald: dataset -> squeeze -> synthesis -> relabel -> evaluate -> tables.
# What there is to do is decided by hald.plan from config/config.yaml; the rules only say how a piece of it is made.

from snakemake.utils import min_version

min_version("9.27")


configfile: "config/config.yaml"


include: "workflow/rules/common.smk"


report: "workflow/report/workflow.rst"


rule all:
    input:
        GRAPH.everything,


include: "workflow/rules/datasets.smk"
include: "workflow/rules/squeeze.smk"
include: "workflow/rules/synthesis.smk"
include: "workflow/rules/labels.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/analysis.smk"
include: "workflow/rules/report.smk"


if workflow.is_main_process:
    check_resources(workflow)


onstart:
    preflight(workflow)
