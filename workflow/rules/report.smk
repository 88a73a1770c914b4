# What people look at: results tables and figures, each a target of its own, and previews of image sets. All of them are
# part of `snakemake --report`.
# In the report each has one label: with two, the page of Snakemake 9.27 makes switches of them and dies on combinations
# that do not exist.


localrules:
    table,
    figure,
    preview,


rule table:
    input:
        runs=GRAPH.input("table", "runs"),
        analyses=GRAPH.input("table", "analyses"),
        changed=GRAPH.changed("table"),
    output:
        meaning=f"{RESULTS}/tables/.meaning/{{table}}.json",
        csv=f"{RESULTS}/tables/{{table}}.csv",
        md=f"{RESULTS}/tables/{{table}}.md",
        tex=f"{RESULTS}/tables/{{table}}.tex",
        html=report(
            f"{RESULTS}/tables/{{table}}.html",
            category="Tables",
            labels=table_label,
            caption="../report/table.rst",
        ),
        records=report(
            f"{RESULTS}/tables/{{table}}.records.html",
            category="Run records",
            labels=table_label,
            caption="../report/records.rst",
        ),
    log:
        f"{LOGS}/table/{{table}}.log",
    conda:
        "../../envs/tables.yaml"
    params:
        job=GRAPH.params("table"),
    message:
        "writing table {wildcards.table}"
    script:
        "../scripts/job.py"


rule figure:
    input:
        runs=GRAPH.input("figure", "runs"),
        analyses=GRAPH.input("figure", "analyses"),
        changed=GRAPH.changed("figure"),
    output:
        meaning=f"{RESULTS}/figures/.meaning/{{figure}}.json",
        png=report(
            f"{RESULTS}/figures/{{figure}}.png",
            category="Figures",
            labels=lambda w: {"figure": w.figure},
            caption="../report/figure.rst",
        ),
        svg=f"{RESULTS}/figures/{{figure}}.svg",
        pdf=f"{RESULTS}/figures/{{figure}}.pdf",
    log:
        f"{LOGS}/figure/{{figure}}.log",
    conda:
        "../../envs/tables.yaml"
    params:
        job=GRAPH.params("figure"),
    message:
        "drawing figure {wildcards.figure}"
    script:
        "../scripts/job.py"


rule preview:
    input:
        images=GRAPH.input("preview", "images"),
    output:
        report(
            f"{RESULTS}/figures/previews/{{images}}.png",
            category="Distilled images",
            labels=preview_label,
            caption="../report/preview.rst",
        ),
    log:
        f"{LOGS}/preview/{{images}}.log",
    conda:
        "../../envs/torch.yaml"
    params:
        job=GRAPH.params("preview"),
    message:
        "preview of image set {wildcards.images}"
    script:
        "../scripts/job.py"
