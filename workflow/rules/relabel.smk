# Soft labels. A job fills whatever its block of views lacks in the store; its output is a ticket of the block's last view.


rule relabel:
    input:
        JOBS.relabel_inputs,
    output:
        touch(f"{RESULTS}/relabelled/{{labels}}/{{view}}"),
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
