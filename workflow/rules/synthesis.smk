# Distilled image sets.


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
        "synthesizing {wildcards.images}"
    script:
        "../scripts/synthesize.py"
