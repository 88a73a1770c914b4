# Student training. One job trains a block of seeds of one setting; its output is the record of the block's last seed.


def run_of(wildcards):
    return PLAN.runs[PLAN.key(wildcards.run)]


def run_spec(wildcards):
    return to_dict(run_of(wildcards))


def run_dataset(wildcards):
    return run_of(wildcards).dataset


def run_manifest(wildcards):
    return manifest(run_of(wildcards).dataset)


def run_labels(wildcards):
    return missing_labels(run_of(wildcards).labels)


def run_store(wildcards):
    return str(PLAN.store_dir(run_of(wildcards).labels))


def run_seeds(wildcards):
    last, size = int(wildcards.seed), PLAN.jobs.seeds_per_job
    return list(range(last // size * size, last + 1))


def run_threads(wildcards):
    return run_of(wildcards).threads


def missing_records(key):
    """Records to make so that run `key` has all the seeds that the plan needs."""
    done = [PLAN.record(key, seed).exists() for seed in range(PLAN.seeds[key])]
    return [str(PLAN.record(key, seed)) for seed in hald.plan.missing_blocks(done, PLAN.jobs.seeds_per_job)]


rule evaluate:
    input:
        manifest=run_manifest,
        labels=run_labels,
    output:
        f"{RESULTS}/runs/{{run}}/seed-{{seed}}.json",
    log:
        f"{LOGS}/evaluate/{{run}}-{{seed}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/evaluate/{{run}}-{{seed}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: run_threads
    params:
        stage="evaluate",
        code=PLAN.code["evaluate"],
        dataset_key=run_dataset,
        spec=run_spec,
        store=run_store,
        seeds=run_seeds,
        partial=partial_dir,
    message:
        "training {wildcards.run}, seeds {params.seeds}"
    script:
        "../scripts/evaluate.py"
