# Student training. One job trains a block of seeds of one setting.


rule evaluate:
    input:
        dataset=GRAPH.input("evaluate", "dataset"),
        labels=GRAPH.input("evaluate", "labels"),
    output:
        f"{RESULTS}/runs/{{run}}/done/{{block}}.json",
    log:
        f"{LOGS}/evaluate/{{run}}-{{block}}.log",
    benchmark:
        f"{TIMES}/evaluate/{{run}}-{{block}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: GRAPH.threads("evaluate")
    params:
        job=GRAPH.params("evaluate"),
    message:
        "training {wildcards.run}, seeds {wildcards.block}"
    script:
        "../scripts/job.py"
