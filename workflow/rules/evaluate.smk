# Student training. One job trains a block of seeds of one setting; its output is the record of the block's last seed.


rule evaluate:
    input:
        JOBS.evaluate_inputs,
    output:
        f"{RESULTS}/runs/{{run}}/seed-{{seed}}.json",
    log:
        f"{LOGS}/evaluate/{{run}}-{{seed}}.log",
    benchmark:
        f"{TIMES}/evaluate/{{run}}-{{seed}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: JOBS.threads
    params:
        work=JOBS.evaluate,
    message:
        "training {wildcards.run} up to seed {wildcards.seed}"
    script:
        "../scripts/evaluate.py"
