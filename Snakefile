# hald: dataset -> squeeze -> synthesis -> relabel -> evaluate -> tables.
# What there is to do is decided by hald.plan from config/config.yaml; the rules only say how a piece of it is made.

from snakemake.utils import min_version

min_version("9.27")


configfile: "config/config.yaml"


include: "workflow/rules/common.smk"


report: "workflow/report/workflow.rst"


rule all:
    input:
        collect(f"{RESULTS}/tables/{{table}}.{{suffix}}", table=list(PLAN.tables), suffix=["csv", "md", "tex", "html"]),
        collect(f"{RESULTS}/figures/{{figure}}.{{suffix}}", figure=list(PLAN.figures), suffix=["png", "svg", "pdf"]),
        unless_there(*map(PLAN.analysis_file, PLAN.analyses)),
        list(map(PLAN.preview_file, PLAN.images)),


include: "workflow/rules/data.smk"
include: "workflow/rules/squeeze.smk"
include: "workflow/rules/synthesis.smk"
include: "workflow/rules/relabel.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/analysis.smk"
include: "workflow/rules/tables.smk"


if workflow.is_main_process:
    check_resources(workflow)


onstart:
    preflight(workflow)
