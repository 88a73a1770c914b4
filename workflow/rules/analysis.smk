# Analyses of finished students, labels and teachers. Each finished subject is kept; a killed job goes on with the next.


rule analysis:
    input:
        dataset=GRAPH.input("analysis", "dataset"),
        labels=GRAPH.input("analysis", "labels"),
        teachers=GRAPH.input("analysis", "teachers"),
        runs=GRAPH.input("analysis", "runs"),
    output:
        f"{RESULTS}/analyses/{{analysis}}/analysis.json",
    log:
        f"{LOGS}/analysis/{{analysis}}.log",
    benchmark:
        f"{TIMES}/analysis/{{analysis}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: GRAPH.threads("analysis")
    params:
        job=GRAPH.params("analysis"),
    message:
        "analysis {wildcards.analysis}"
    script:
        "../scripts/job.py"
