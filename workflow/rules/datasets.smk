# Raw data -> prepared dataset. Raw folders are never inputs: the manifest is what the rest of the workflow knows.


rule dataset:
    output:
        f"{RESULTS}/datasets/{{dataset}}/manifest.json",
    log:
        f"{LOGS}/dataset/{{dataset}}.log",
    benchmark:
        f"{TIMES}/dataset/{{dataset}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: 2
    params:
        job=GRAPH.params("dataset"),
    message:
        "preparing dataset {wildcards.dataset}"
    script:
        "../scripts/job.py"
