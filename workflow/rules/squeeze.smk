# Teachers. Weights that have to be downloaded have a rule of their own, which runs where the network is.


def teacher_spec(wildcards):
    return to_dict(PLAN.teachers[PLAN.key(wildcards.teacher)])


def teacher_dataset(wildcards):
    return PLAN.teachers[PLAN.key(wildcards.teacher)].dataset


def teacher_manifest(wildcards):
    return manifest(teacher_dataset(wildcards))


def teacher_weights(wildcards):
    """The file with a teacher's weights, where they do not come from training."""
    spec = PLAN.teachers[PLAN.key(wildcards.teacher)]
    if spec.source == "torchvision":
        return f"{RESULTS}/weights/{spec.arch}/{spec.weights}.safetensors"
    return [spec.path] if spec.source == "path" else []


def teacher_threads(wildcards):
    return PLAN.teachers[PLAN.key(wildcards.teacher)].threads


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
        manifest=teacher_manifest,
        weights=teacher_weights,
    output:
        f"{RESULTS}/teachers/{{teacher}}/teacher.json",
    log:
        f"{LOGS}/squeeze/{{teacher}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/squeeze/{{teacher}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: teacher_threads
    params:
        stage="squeeze",
        code=PLAN.code["squeeze"],
        dataset_key=teacher_dataset,
        spec=teacher_spec,
        partial=partial_dir,
        workers=PLAN.jobs.workers,
    message:
        "squeezing teacher {wildcards.teacher}"
    script:
        "../scripts/squeeze.py"
