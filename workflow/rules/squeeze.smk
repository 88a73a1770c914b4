# Teachers. Weights that have to be downloaded have a rule of their own, which runs where the network is.


localrules:
    weights,


rule weights:
    output:
        f"{RESULTS}/weights/{{weights}}.safetensors",
    log:
        f"{LOGS}/weights/{{weights}}.log",
    conda:
        "../../envs/torch.yaml"
    params:
        job=GRAPH.params("weights"),
    message:
        "fetching weights {wildcards.weights}"
    script:
        "../scripts/job.py"


rule squeeze:
    input:
        dataset=GRAPH.input("squeeze", "dataset"),
        weights=GRAPH.input("squeeze", "weights"),
    output:
        f"{RESULTS}/teachers/{{teacher}}/teacher.json",
    log:
        f"{LOGS}/squeeze/{{teacher}}.log",
    benchmark:
        f"{TIMES}/squeeze/{{teacher}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: GRAPH.threads("squeeze")
    params:
        job=GRAPH.params("squeeze"),
    message:
        "squeezing teacher {wildcards.teacher}"
    script:
        "../scripts/job.py"
