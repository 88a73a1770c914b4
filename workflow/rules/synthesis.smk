# Distilled image sets. Rankings (RDED, patches) and optimised images (SRe2L, LPLD, FADRM) are made in units; the output
# of a job is the receipt of its block of units.


rule rank:
    input:
        dataset=GRAPH.input("rank", "dataset"),
        teachers=GRAPH.input("rank", "teachers"),
    output:
        f"{RESULTS}/rankings/{{ranking}}/done/{{block}}.json",
    log:
        f"{LOGS}/rank/{{ranking}}-{{block}}.log",
    benchmark:
        f"{TIMES}/rank/{{ranking}}-{{block}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: GRAPH.threads("rank")
    params:
        job=GRAPH.params("rank"),
    message:
        "ranking crops {wildcards.ranking}, classes {wildcards.block}"
    script:
        "../scripts/job.py"


rule statistics:
    input:
        dataset=GRAPH.input("statistics", "dataset"),
        teachers=GRAPH.input("statistics", "teachers"),
    output:
        f"{RESULTS}/statistics/{{statistics}}/statistics.json",
    log:
        f"{LOGS}/statistics/{{statistics}}.log",
    benchmark:
        f"{TIMES}/statistics/{{statistics}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: GRAPH.threads("statistics")
    params:
        job=GRAPH.params("statistics"),
    message:
        "collecting class-wise BN statistics {wildcards.statistics}"
    script:
        "../scripts/job.py"


rule recover:
    input:
        dataset=GRAPH.input("recover", "dataset"),
        teachers=GRAPH.input("recover", "teachers"),
        statistics=GRAPH.input("recover", "statistics"),
        ranking=GRAPH.input("recover", "ranking"),
    output:
        f"{RESULTS}/units/{{units}}/done/{{block}}.json",
    log:
        f"{LOGS}/recover/{{units}}-{{block}}.log",
    benchmark:
        f"{TIMES}/recover/{{units}}-{{block}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: GRAPH.threads("recover")
    params:
        job=GRAPH.params("recover"),
    message:
        "optimising images {wildcards.units}, units {wildcards.block}"
    script:
        "../scripts/job.py"


rule synthesize:
    input:
        dataset=GRAPH.input("synthesize", "dataset"),
        teachers=GRAPH.input("synthesize", "teachers"),
        ranking=GRAPH.input("synthesize", "ranking"),
        units=GRAPH.input("synthesize", "units"),
    output:
        f"{RESULTS}/images/{{images}}.zarr/image_set.json",
    log:
        f"{LOGS}/synthesize/{{images}}.log",
    benchmark:
        f"{TIMES}/synthesize/{{images}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: GRAPH.threads("synthesize")
    params:
        job=GRAPH.params("synthesize"),
    message:
        "putting together image set {wildcards.images}"
    script:
        "../scripts/job.py"
