"""The user's config as dataclasses. Schema and config/README.md are generated from them.

They are apart from the specs, so that a new option or other words never change a key.
"""

from dataclasses import dataclass
from typing import Literal

from hald.evaluation.settings import Evaluation, Student
from hald.plain import option
from hald.report.settings import Analysis, Figure, Table
from hald.squeeze.spec import Recipe
from hald.synthesis.spec import Recover


@dataclass(frozen=True)
class Augment:
    """Random crops and flips: part of a dataset, because digits and letters have an orientation."""

    scale: tuple[float, float] = option(
        "Smallest and largest crop area, as a share of the image", (0.08, 1.0), exclusiveMinimum=0, maximum=1
    )
    ratio: tuple[float, float] = option(
        "Smallest and largest aspect ratio (width / height) of a crop", (3 / 4, 4 / 3), exclusiveMinimum=0
    )
    flip: float = option("Probability of a horizontal flip", 0.5, minimum=0, maximum=1)


@dataclass(frozen=True)
class Dataset:
    """One dataset as the config describes it."""

    source: Literal["sklearn_digits", "torchvision", "imagefolder", "tiny_imagenet", "parquet"] = option(
        "Reader: scikit-learn's digits, torchvision's CIFAR classes, one folder per class, Tiny-ImageNet's official "
        "layout, or parquet files in the Hugging Face image layout"
    )
    size: int = option("Side of the square network input, in pixels", minimum=1)
    classes: int = option("Number of classes; checked against what is found", minimum=2)
    mean: tuple[float, float, float] = option("Channel means of the inputs its models are trained with")
    std: tuple[float, float, float] = option("Channel standard deviations, likewise", exclusiveMinimum=0)
    root: str | None = option(
        "Folder of the raw data; `$HALD_DATA` and other variables are expanded. Not part of any key", None
    )
    variant: str | None = option("Which torchvision dataset class to read (CIFAR10, CIFAR100)", None)
    download: bool = option("Let torchvision download the data when it is missing", False)
    train: str = option("Name of the training split (folder or parquet file stem)", "train")
    test: str = option("Name of the test split", "test")
    subset: tuple[str, ...] | int | None = option(
        "Use only these classes, by name, or only the first n in class order; `classes` is then their number",
        None,
        minimum=1,
    )
    resize: int | None = option(
        "Evaluation: resize the shorter side to this, then crop the centre; empty: images already have the input size",
        None,
        minimum=1,
    )
    augment: Augment = option("Random crops and flips of this dataset", Augment())
    published_as: str | None = option(
        "Dataset of config/paper whose published settings it takes and whose numbers stand beside its own; empty: that "
        "of its own name",
        None,
    )
    floor: float = option(
        "Lowest top-1 accuracy (percent) of a teacher that the pipeline goes on with", 0.0, minimum=0, maximum=100
    )


@dataclass(frozen=True)
class Teacher:
    """One teacher as the config describes it."""

    arch: str = option(
        "Network: `small/resnet18`, `small/resnet10-w8` (3x3 stem, no pooling), `sre2l/resnet18` (torchvision's with "
        "that stem), `torchvision/<name>` or `timm/<name>`"
    )
    source: Literal["train", "torchvision", "path"] = option(
        "Train from scratch, take torchvision's ImageNet-1K weights, or read a file", "train"
    )
    weights: str = option("torchvision weights to take (`source: torchvision`)", "IMAGENET1K_V1")
    path: str | None = option(
        "File to read (`source: path`): safetensors, or a state dict saved by torch; variables are expanded", None
    )
    recipe: Recipe = option("Training recipe (`source: train`)", Recipe())
    mean: tuple[float, float, float] | None = option("Channel means it is fed with; empty: the dataset's", None)
    std: tuple[float, float, float] | None = option("Channel deviations it is fed with; empty: the dataset's", None)
    seed: int = option("Seed of initialisation and data order", 0, minimum=0)


CodecName = Literal["u8", "u4", "u2", "i16", "f16", "topk"]


@dataclass(frozen=True)
class Images:
    """One way of making distilled images, as the config describes it."""

    method: Literal["sre2l", "lpld", "fadrm", "rded", "patches", "real", "external"] = option(
        "Optimised images (SRe2L, LPLD, FADRM), RDED's crop selection, patches (real crops of a chosen difficulty), a "
        "random real subset, or images made elsewhere. A `preset` gives it too"
    )
    preset: str | None = option(
        "Settings to start from, by name in config/presets.yaml, e.g. `fadrm/cifar100`; keys given beside it win", None
    )
    teacher: str | None = option("Teacher that scores or classifies the images; empty: the experiment's", None)
    teachers: tuple[str, ...] | None = option(
        "Several teachers, used in turn, one per iteration (FADRM+); empty: `teacher`", None, minItems=1
    )
    path: str | None = option(
        "`method: external`: folder of the images, one folder per class; variables are expanded", None
    )
    mipc: int = option("RDED and patches: images per class that are looked at", 300, minimum=1)
    num_crop: int = option("RDED and patches: random crops scored per image", 5, minimum=1)
    factor: int = option("RDED and patches: each image is a factor x factor mosaic of crops", 1, minimum=1)
    crop_scale: tuple[float, float] = option(
        "RDED and patches: area range of their crops", (0.08, 1.0), exclusiveMinimum=0, maximum=1
    )
    difficulty: Literal["easy", "medium", "hard"] = option(
        "Patches: lowest, middle or highest ranks of the teacher's loss", "medium"
    )
    init: Literal["gaussian", "patches"] = option("SRe2L starts from noise, SRe2L++ from patches", "gaussian")
    batch: int = option(
        "Images optimised together: one of each of so many classes (SRe2L, FADRM), or of one class (LPLD)",
        100,
        minimum=1,
    )
    recover: Recover = option("The optimisation (SRe2L, LPLD, FADRM)", Recover())
    alpha: float = option(
        "FADRM: share of the optimised image when the patch is blended in again", 0.5, minimum=0, maximum=1
    )
    bn_stats: Literal["exact", "ema0.1"] = option(
        "LPLD's class statistics: exact moments, or the released moving average", "exact"
    )
    stats_batch: int = option("LPLD: batch of the pass that collects class statistics", 256, minimum=1)
    bn_mode: Literal["batch", "running"] | None = option(
        "BN statistics of the teacher while these images are labelled: of the batch (BSSL) or the running ones; "
        "empty: batch for sre2l, lpld and fadrm and running for rded, as released, running for patches and real; "
        "`method: external` has to say",
        None,
    )
    codec: CodecName | None = option("How the logits of its labels are stored; empty: as `labels` says", None)
    top_k: int | None = option("With `codec: topk`: logits kept per label of this set", None, minimum=1)
    seed: int = option("Seed of the random choices", 0, minimum=0)


@dataclass(frozen=True)
class Labels:
    """Relabel settings, as the config describes them."""

    teachers: tuple[str, ...] | None = option("Teachers that label; empty: the experiment's own one", None, minItems=1)
    weights: tuple[float, ...] | None = option("Weight of each teacher's logits; empty: the same for all", None)
    batch: int = option("Images per stored batch (CutMix partners and BN statistics stay inside it)", 16, minimum=2)
    mix: Literal["cutmix", "mixup", "none"] = option("Mixing inside a batch", "cutmix")
    mix_alpha: float = option("Both parameters of the Beta distribution of the mixing share", 1.0, exclusiveMinimum=0)
    codec: CodecName = option(
        "How logits are stored: in 208, 15 or 3 steps between a label's smallest and largest, in fixed fine steps (two "
        "bytes), in half precision, or only the largest few",
        "u8",
    )
    top_k: int | None = option("Logits kept per label, with `codec: topk` only; empty: 100", None, minimum=1)
    seed: int = option("Seed of the views", 42, minimum=0)


@dataclass(frozen=True)
class Jobs:
    """How work is cut into jobs. Never part of a key: results do not depend on it."""

    target_minutes: float = option(
        "How long a job should last. Sizes below that are empty follow from it and from recorded timings of the same "
        "kind of work, when a run starts; shorter where four jobs of at least a minute can share the work",
        60.0,
        exclusiveMinimum=0,
    )
    views_per_job: int | None = option(
        "Label views that one relabel job computes; empty: from target_minutes, or 20 before there are timings",
        None,
        minimum=1,
    )
    seeds_per_job: int | None = option(
        "Seeds of one setting that one evaluation job trains; empty: likewise, or 3", None, minimum=1
    )
    units_per_job: int | None = option(
        "Units of synthesis that one job computes: classes (RDED's ranking, LPLD), or images of a class chunk; empty: "
        "likewise, or 10",
        None,
        minimum=1,
    )
    workers: int = option("Worker processes that decode images of large datasets", 4, minimum=0)


@dataclass(frozen=True)
class Config:
    """config/config.yaml: which experiments, and where things are kept."""

    experiments: tuple[str, ...] = option(
        "Files of config/experiments/ by name (without .yaml), others by path: studies/cpu/experiments/base",
        ("demo",),
        minItems=1,
    )
    results: str = option("Folder of everything that is made", "results")
    stores: str = option(
        "Folder of the soft-label stores. A store holds its images, its labels and its teacher, so a folder shared "
        "between users or runs spares them all three",
        "results/labels",
    )
    jobs: Jobs = option("How work is cut into jobs", Jobs())
    datasets: dict[str, Dataset] = option(
        "Your datasets, and changes to those of config/datasets.yaml (merged key by key)", {}
    )
    override: dict[str, dict[str, object]] = option(
        "Changes to experiments, by name (merged key by key): try a setting without editing its file", {}
    )


@dataclass(frozen=True)
class Experiment:
    """One file of config/experiments/."""

    dataset: str = option("Name of the dataset")
    teacher: str = option("Name of the teacher that scores images and labels views where nothing else is said")
    teachers: dict[str, Teacher] = option("Teachers by name")
    images: dict[str, Images] = option("Image sets by name; a table says at which IPC")
    students: dict[str, Student] = option("Students by name")
    tables: dict[str, Table] = option("Results tables by id: `snakemake --cores all results/tables/<id>.csv` makes one")
    analyses: dict[str, Analysis] = option("Analyses by name: what tables and figures of them show", {})
    figures: dict[str, Figure] = option("Figures by id: `snakemake --cores all results/figures/<id>.png` makes one", {})
    evaluations: dict[str, Evaluation] = option(
        "Training protocols by name, and changes to those of config/evaluations.yaml (merged key by key)", {}
    )
    epochs: int = option("Training epochs of evaluations that do not say", 300, minimum=1)
    beta2: float | Literal["scaled"] = option(
        "AdamW's beta2 of evaluations that do not say", 0.999, minimum=0, exclusiveMaximum=1
    )
    measure_every: int = option(
        "Epochs between points of a learning curve, of evaluations that do not say", 10, minimum=1
    )
    slc_rounding: Literal["batches", "floor"] = option(
        "What an SLC that is no multiple of the IPC means where an evaluation does not say; released code: floor",
        "batches",
    )
    labels: Labels = option("How views are drawn and labelled", Labels())
    threads: int = option("CPU threads of every job; part of the keys, because sums depend on it", 2, minimum=1)
