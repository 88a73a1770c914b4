# Distilled image sets.


def images_of(wildcards):
    return PLAN.images[PLAN.key(wildcards.images)]


def images_spec(wildcards):
    return to_dict(images_of(wildcards))


def images_code(wildcards):
    return PLAN.code[images_stage(wildcards)]


def images_stage(wildcards):
    return f"synthesis.{images_of(wildcards).method}"


def images_dataset(wildcards):
    return images_of(wildcards).dataset


def images_manifest(wildcards):
    return manifest(images_of(wildcards).dataset)


def images_teacher(wildcards):
    teacher = images_of(wildcards).teacher
    return teacher_record(teacher) if teacher else []


def images_floor(wildcards):
    return PLAN.floors.get(images_of(wildcards).teacher, 0.0)


def images_threads(wildcards):
    return images_of(wildcards).threads


rule synthesize:
    input:
        manifest=images_manifest,
        teacher=images_teacher,
    output:
        f"{RESULTS}/images/{{images}}.zarr/image_set.json",
    log:
        f"{LOGS}/synthesize/{{images}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/synthesize/{{images}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: images_threads
    params:
        stage=images_stage,
        code=images_code,
        dataset_key=images_dataset,
        spec=images_spec,
        partial=partial_dir,
        floor=images_floor,
        workers=PLAN.jobs.workers,
    message:
        "synthesizing {wildcards.images}"
    script:
        "../scripts/synthesize.py"
