# Raw data -> prepared dataset. Raw folders are never inputs: the manifest is what the rest of the workflow knows.


def dataset_spec(wildcards):
    return to_dict(PLAN.datasets[PLAN.key(wildcards.dataset)])


def dataset_of_dataset(wildcards):
    return PLAN.key(wildcards.dataset)


rule dataset:
    output:
        f"{RESULTS}/datasets/{{dataset}}/manifest.json",
    log:
        f"{LOGS}/dataset/{{dataset}}.log",
    conda:
        "../../envs/torch.yaml"
    threads: 2
    params:
        stage="dataset",
        code=PLAN.code["dataset"],
        dataset_key=dataset_of_dataset,
        spec=dataset_spec,
        partial=partial_dir,
    message:
        "preparing dataset {wildcards.dataset}"
    script:
        "../scripts/dataset.py"
