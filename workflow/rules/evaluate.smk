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


# A student that an analysis wants and whose record is there already: trained again, and kept this time.


rule student:
    input:
        JOBS.evaluate_inputs,
    output:
        f"{RESULTS}/runs/{{run}}/students/seed-{{seed}}/stage-{{stage}}.safetensors",
    log:
        f"{LOGS}/student/{{run}}-{{seed}}-{{stage}}.log",
    benchmark:
        f"{TIMES}/student/{{run}}-{{seed}}-{{stage}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: JOBS.threads
    params:
        work=JOBS.student,
    message:
        "training {wildcards.run} again to keep its student of seed {wildcards.seed}"
    script:
        "../scripts/evaluate.py"
