# Soft labels. The output of a job is the marker of the last view of its block; the job fills whatever the block lacks.
# A store that exists carries its images and its teacher, so that growing it asks for neither.


def labels_of(wildcards):
    return PLAN.labels[PLAN.key(wildcards.labels)]


def labels_spec(wildcards):
    return to_dict(labels_of(wildcards))


def labels_dataset(wildcards):
    return PLAN.images[labels_of(wildcards).images].dataset


def labels_sources(wildcards):
    """Image set and teacher, unless the store already has them in it."""
    if (PLAN.store_dir(PLAN.key(wildcards.labels)) / "zarr.json").exists():
        return []
    spec = labels_of(wildcards)
    return [ancient(str(PLAN.images_dir(spec.images) / "image_set.json")), teacher_record(spec.teacher)]


def labels_images(wildcards):
    return str(PLAN.images_dir(labels_of(wildcards).images))


def labels_teacher(wildcards):
    return str(PLAN.teacher_dir(labels_of(wildcards).teacher))


def labels_floor(wildcards):
    return PLAN.floors[labels_of(wildcards).teacher]


def labels_block(wildcards):
    """First and last view of the job's block."""
    last, size = int(wildcards.view), PLAN.jobs.views_per_job
    return [last // size * size, last]


def labels_threads(wildcards):
    return labels_of(wildcards).threads


def missing_labels(key):
    """Markers to make so that store `key` has all the views that the plan needs. Whole views are not asked for again."""
    done = [PLAN.marker(key, view).exists() for view in range(PLAN.views[key])]
    return [str(PLAN.marker(key, view)) for view in hald.plan.missing_blocks(done, PLAN.jobs.views_per_job)]


rule relabel:
    input:
        labels_sources,
    output:
        f"{STORES}/{{labels}}.zarr/views/{{view}}.json",
    log:
        f"{LOGS}/relabel/{{labels}}-{{view}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/relabel/{{labels}}-{{view}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: labels_threads
    params:
        stage="relabel",
        code=PLAN.code["relabel"],
        dataset_key=labels_dataset,
        spec=labels_spec,
        images=labels_images,
        teacher=labels_teacher,
        block=labels_block,
        floor=labels_floor,
    message:
        "labelling views {params.block[0]} to {params.block[1]} of {wildcards.labels}"
    script:
        "../scripts/relabel.py"
