# Soft labels. A job fills whatever its block of views lacks in the store; its output is the receipt of the block. Views
# are nobody's output: Snakemake removes the outputs of jobs that begin or fail, and a store may belong to others too.


rule relabel:
    input:
        images=GRAPH.input("relabel", "images"),
        teachers=GRAPH.input("relabel", "teachers"),
    output:
        f"{PLAN.stores}/{{labels}}.zarr/done/{{block}}.json",
    log:
        f"{LOGS}/relabel/{{labels}}-{{block}}.log",
    benchmark:
        f"{TIMES}/relabel/{{labels}}-{{block}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: GRAPH.threads("relabel")
    params:
        job=GRAPH.params("relabel"),
    message:
        "labelling {wildcards.labels}, views {wildcards.block}"
    script:
        "../scripts/job.py"
