# Soft labels. A job's output is the marker of the last view of its block; the job fills whatever the block lacks.


rule relabel:
    input:
        JOBS.relabel_inputs,
    output:
        f"{STORES}/{{labels}}.zarr/views/{{view}}.json",
    log:
        f"{LOGS}/relabel/{{labels}}-{{view}}.log",
    benchmark:
        f"{TIMES}/relabel/{{labels}}-{{view}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: JOBS.threads
    params:
        work=JOBS.relabel,
    message:
        "labelling {wildcards.labels} up to view {wildcards.view}"
    script:
        "../scripts/relabel.py"
