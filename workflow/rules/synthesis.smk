# Distilled image sets. Rankings (RDED, patches) and optimised images (SRe2L, LPLD, FADRM) are made in units: a job's
# output is the last missing unit of its block; the job fills whatever the block lacks.


rule rank:
    input:
        JOBS.rank_inputs,
    output:
        f"{RESULTS}/rankings/{{ranking}}/{{unit}}.npz",
    log:
        f"{LOGS}/rank/{{ranking}}-{{unit}}.log",
    benchmark:
        f"{TIMES}/rank/{{ranking}}-{{unit}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: JOBS.threads
    params:
        work=JOBS.rank,
    message:
        "ranking crops {wildcards.ranking} up to class {wildcards.unit}"
    script:
        "../scripts/rank.py"


rule statistics:
    input:
        JOBS.statistics_inputs,
    output:
        f"{RESULTS}/statistics/{{statistics}}/statistics.json",
    log:
        f"{LOGS}/statistics/{{statistics}}.log",
    benchmark:
        f"{TIMES}/statistics/{{statistics}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: JOBS.threads
    params:
        work=JOBS.statistics,
    message:
        "collecting class-wise BN statistics {wildcards.statistics}"
    script:
        "../scripts/class_statistics.py"


rule recover:
    input:
        JOBS.recover_inputs,
    output:
        f"{RESULTS}/units/{{units}}/{{unit}}.npz",
    log:
        f"{LOGS}/recover/{{units}}-{{unit}}.log",
    benchmark:
        f"{TIMES}/recover/{{units}}-{{unit}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: JOBS.threads
    params:
        work=JOBS.recover,
    message:
        "optimising images {wildcards.units} up to unit {wildcards.unit}"
    script:
        "../scripts/recover.py"


rule synthesize:
    input:
        JOBS.synthesize_inputs,
    output:
        f"{RESULTS}/images/{{images}}.zarr/image_set.json",
    log:
        f"{LOGS}/synthesize/{{images}}.log",
    benchmark:
        f"{TIMES}/synthesize/{{images}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: JOBS.threads
    params:
        work=JOBS.synthesize,
    message:
        "putting together image set {wildcards.images}"
    script:
        "../scripts/synthesize.py"
