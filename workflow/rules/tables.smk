# What people look at: results tables and figures, each a target of its own, and previews of image sets. All of them are
# part of `snakemake --report`.


localrules:
    table,
    figure,
    preview,


rule table:
    input:
        OUTCOMES.table_inputs,
    output:
        meaning=f"{RESULTS}/.plan/tables/{{table}}.json",
        csv=f"{RESULTS}/tables/{{table}}.csv",
        md=f"{RESULTS}/tables/{{table}}.md",
        tex=f"{RESULTS}/tables/{{table}}.tex",
        html=report(
            f"{RESULTS}/tables/{{table}}.html",
            category="Tables",
            labels=OUTCOMES.table_labels,
            caption="../report/table.rst",
        ),
        records=report(
            f"{RESULTS}/tables/{{table}}.records.html",
            category="Run records",
            labels=OUTCOMES.table_labels,
            caption="../report/records.rst",
        ),
    log:
        f"{LOGS}/table/{{table}}.log",
    conda:
        "../../envs/tables.yaml"
    params:
        work=OUTCOMES.table,
    message:
        "writing table {wildcards.table}"
    script:
        "../scripts/table.py"


rule figure:
    input:
        OUTCOMES.figure_inputs,
    output:
        meaning=f"{RESULTS}/.plan/figures/{{figure}}.json",
        png=report(
            f"{RESULTS}/figures/{{figure}}.png",
            category="Figures",
            labels=OUTCOMES.figure_labels,
            caption="../report/figure.rst",
        ),
        svg=f"{RESULTS}/figures/{{figure}}.svg",
        pdf=f"{RESULTS}/figures/{{figure}}.pdf",
    log:
        f"{LOGS}/figure/{{figure}}.log",
    conda:
        "../../envs/tables.yaml"
    params:
        work=OUTCOMES.figure,
    message:
        "drawing figure {wildcards.figure}"
    script:
        "../scripts/figure.py"


rule preview:
    input:
        OUTCOMES.preview_inputs,
    output:
        report(
            f"{RESULTS}/figures/previews/{{images}}.png",
            category="Distilled images",
            labels=OUTCOMES.preview_labels,
            caption="../report/preview.rst",
        ),
    log:
        f"{LOGS}/preview/{{images}}.log",
    conda:
        "../../envs/torch.yaml"
    params:
        work=OUTCOMES.preview,
    message:
        "preview of image set {wildcards.images}"
    script:
        "../scripts/preview.py"
