# Teachers. Weights that have to be downloaded have a rule of their own, which runs where the network is.


localrules:
    weights,


rule weights:
    output:
        f"{RESULTS}/weights/{{family}}/{{name}}/{{weights}}.safetensors",
    log:
        f"{LOGS}/weights/{{family}}-{{name}}-{{weights}}.log",
    conda:
        "../../envs/torch.yaml"
    params:
        arch="{family}/{name}",
        weights="{weights}",
    message:
        "fetching torchvision weights {wildcards.weights} of {wildcards.name}"
    script:
        "../scripts/weights.py"


rule squeeze:
    input:
        JOBS.squeeze_inputs,
    output:
        f"{RESULTS}/teachers/{{teacher}}/teacher.json",
    log:
        f"{LOGS}/squeeze/{{teacher}}.log",
    benchmark:
        f"{TIMES}/squeeze/{{teacher}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: JOBS.threads
    params:
        work=JOBS.squeeze,
    message:
        "squeezing teacher {wildcards.teacher}"
    script:
        "../scripts/squeeze.py"
