"""The user's config as dataclasses. Schema and config/README.md are generated from them.

They are apart from the specs, so that a new option or other words never change a key.
"""

from dataclasses import dataclass
from typing import Literal

from hald.plan.outcome_settings import Analysis, Figure
from hald.specs.base import option
from hald.specs.images import Recover
from hald.specs.teacher import Recipe

Order = Literal["soft", "hard", "soft-hard-soft", "hard-soft", "soft-hard", "hard-soft-hard", "alternating", "adaptive"]


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
        "Dataset of config/paper/evaluation.yaml whose published settings it takes; empty: that of its own name", None
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
        "empty: batch for sre2l, lpld and fadrm, running for the others, as released",
        None,
    )
    seed: int = option("Seed of the random choices", 0, minimum=0)


@dataclass(frozen=True)
class Labels:
    """Relabel settings, as the config describes them."""

    teachers: tuple[str, ...] | None = option("Teachers that label; empty: the experiment's own one", None, minItems=1)
    weights: tuple[float, ...] | None = option("Weight of each teacher's logits; empty: the same for all", None)
    batch: int = option("Images per stored batch (CutMix partners and BN statistics stay inside it)", 16, minimum=1)
    mix: Literal["cutmix", "mixup", "none"] = option("Mixing inside a batch", "cutmix")
    mix_alpha: float = option("Both parameters of the Beta distribution of the mixing share", 1.0, exclusiveMinimum=0)
    codec: Literal["u8", "i16", "f16", "topk"] = option(
        "How logits are stored: a byte per class and a scale per label, two bytes, half precision, or the top few",
        "u8",
    )
    top_k: int | None = option("Logits kept per label, with `codec: topk` only; empty: 100", None, minimum=1)
    seed: int = option("Seed of the views", 42, minimum=0)


@dataclass(frozen=True)
class Anneal:
    """LPQLD's teacher temperature: from `temperature` down by a factor every few epochs, to a floor."""

    factor: float = option("What the temperature is multiplied with at each step", 0.7, exclusiveMinimum=0, maximum=1)
    every: int = option("Epochs between steps", 30, minimum=1)
    floor: float = option("Lowest temperature", 2.0, exclusiveMinimum=0)


@dataclass(frozen=True)
class Adaptive:
    """When the adaptive schedule changes from soft to hard and back. The paper prints none of these values."""

    window: int = option("Epochs over which a plateau is looked for", 10, minimum=1)
    accuracy: float = option("Soft to hard: held-out accuracy grows by less than these points per epoch", 0.05)
    entropy: float = option(
        "Hard to soft: mean prediction entropy, as a share of ln C, changes by less than this over the window",
        0.005,
        exclusiveMinimum=0,
    )
    shortest: int = option("Least epochs of every stage", 20, minimum=1)
    held_out: int = option("Distilled images per class that are only looked at, never trained on", 1, minimum=1)


@dataclass(frozen=True)
class Evaluation:
    """One training protocol, as the config describes it (a value per SLC where it says so)."""

    order: Order = option(
        "Order of the stages; the first of two parts of a kind is the smaller half. `alternating` changes every "
        "`alternate` epochs, `adaptive` is soft-hard-soft that changes at plateaus",
        "soft",
    )
    epochs: int | None = option("Training epochs over all stages; empty: the experiment's", None, minimum=1)
    hard_epochs: int | dict[int, int] | None = option(
        "Epochs of hard-label training, or a map from SLC to them (an SLC takes the nearest entry at or below it); "
        "empty: as published for the dataset and SLC, in proportion to `epochs`, else half of the epochs",
        None,
        minimum=0,
    )
    first_epochs: int | None = option(
        "Epochs of the first stage, where its kind comes twice; empty: half", None, minimum=1
    )
    last_epochs: int | None = option("Epochs of the last stage, likewise; all must add up to `epochs`", None, minimum=1)
    alternate: int = option("Epochs between changes with `order: alternating`", 1, minimum=1)
    alternate_first: Literal["soft", "hard"] = option("Kind that `order: alternating` starts with", "soft")
    adaptive: Adaptive = option("When `order: adaptive` changes", Adaptive())
    lr: float | None = option(
        "Initial learning rate; empty: as published for the dataset, student and IPC, else 0.001 (ViT: 0.0005)",
        None,
        exclusiveMinimum=0,
    )
    eta: float | None = option(
        "Divides the phase of the cosine schedule: 1 ends at zero, 2 at half the rate; empty: as published, else 2",
        None,
        minimum=1,
    )
    weight_decay: float = option("AdamW weight decay on weights with more than one dimension", 0.01, minimum=0)
    beta2: float | Literal["scaled"] | None = option(
        "AdamW's decay of the second moment, which remembers about 1 / (1 - beta2) steps; scaled: as large a part of a "
        "short training as 0.999 is of the shortest published one; empty: the experiment's",
        None,
        minimum=0,
        exclusiveMaximum=1,
    )
    loss: Literal["kl", "gift", "joint", "lpqld"] = option(
        "Loss of the soft stages: KL divergence, GIFT's cosine, KL plus cross-entropy (joint objective), or KL with an "
        "annealed teacher and a calibrated student temperature (LPQLD)",
        "kl",
    )
    temperature: float = option("Temperature of the soft labels, teacher and student", 20.0, exclusiveMinimum=0)
    kd_scale: Literal["none", "T2"] = option("Scale of the KL term: as it is, or times T squared", "none")
    joint_weight: float = option("`loss: joint`: weight of the cross-entropy", 1.0, minimum=0)
    gift_weight: float = option("`loss: gift`: weight of the hard label beside the teacher's logits", 0.1, minimum=0)
    gift_label: Literal["own", "mixed"] = option(
        "`loss: gift`: the hard label is the image's own class, or mixed like the image", "own"
    )
    anneal: Anneal = option("`loss: lpqld`: the teacher's temperature", Anneal())
    handover: Literal["carry", "reset"] = option(
        "AdamW's state at a stage boundary: carried over (as released) or cleared", "carry"
    )
    smoothing: float = option("Label smoothing of hard labels", 0.8, minimum=0, maximum=1)
    sampling: Literal["permutation", "epoch", "replacement"] = option(
        "How stored batches are drawn: each once per pass over the pool, distinct ones in every epoch (LPQLD), or with "
        "replacement (LPLD)",
        "permutation",
    )
    top_k: int | None = option(
        "Use only the k largest logits of every label, renormalised (LPQLD); empty: all of them", None, minimum=1
    )
    slc_rounding: Literal["batches", "floor"] | None = option(
        "An SLC that is no multiple of the IPC: a prefix of whole batches of one more view, or whole views; empty: "
        "the experiment's",
        None,
    )
    measure_every: int = option(
        "Epochs between points of the learning curve; the last epoch always is one", 10, minimum=1
    )
    precision: Literal["float32", "bf16", "fp16"] = option("Arithmetic of the network: float32, or mixed", "float32")
    compile: Literal["auto", "off", "on", "graphs"] = option(
        "torch.compile for the student, also with CUDA graphs; auto: in trainings of 40,000 steps and more", "auto"
    )


@dataclass(frozen=True)
class Student:
    """One student network, as the config describes it."""

    arch: str = option("Network, named as for teachers")
    lr: float | None = option("Learning rate for this student; empty: the evaluation's", None, exclusiveMinimum=0)


@dataclass(frozen=True)
class Grid:
    """One part of a table: all combinations of its lists. A list that is left out is the table's."""

    images: tuple[str, ...] = option("Image sets, by name", (), minItems=1)
    evaluations: tuple[str, ...] = option("Evaluations, by name", (), minItems=1)
    students: tuple[str, ...] = option("Students, by name", (), minItems=1)
    ipc: tuple[int, ...] = option("Images per class", (), minItems=1, minimum=1, uniqueItems=True)
    slc: tuple[int, ...] = option("Soft labels per class", (), minItems=1, minimum=1, uniqueItems=True)
    sli: tuple[int, ...] = option("Soft labels per image, instead of slc", (), minItems=1, minimum=1, uniqueItems=True)
    label: str | None = option("What the field `label` shows for these cells; empty: the image set's name", None)


@dataclass(frozen=True)
class Table:
    """One table, as the config describes it. Its grids are what asks for runs.

    The same id in several experiments is one table with the cells of all of them.
    """

    caption: str = option("Title above the table")
    images: tuple[str, ...] = option("Image sets of the grid, by name", (), minItems=1)
    evaluations: tuple[str, ...] = option("Evaluations of the grid, by name", (), minItems=1)
    students: tuple[str, ...] = option("Students of the grid, by name", (), minItems=1)
    ipc: tuple[int, ...] = option("Images per class", (), minItems=1, minimum=1, uniqueItems=True)
    slc: tuple[int, ...] = option("Soft labels per class", (), minItems=1, minimum=1, uniqueItems=True)
    sli: tuple[int, ...] = option("Soft labels per image, instead of slc", (), minItems=1, minimum=1, uniqueItems=True)
    grids: tuple[Grid, ...] = option("Parts of a table that is not one grid; each takes the lists above it lacks", ())
    published_as: str | None = option(
        "Table of config/paper/tables.yaml whose numbers stand beside ours; empty: that of its own id", None
    )
    seeds: int = option("Students trained per cell, with seeds 0 .. seeds-1", 3, minimum=1)
    rows: tuple[str, ...] = option(
        "Fields that make a row: dataset, images, ipc, slc, sli, student, evaluation, label", ("images", "slc")
    )
    columns: tuple[str, ...] = option("Fields that make a column", ("evaluation",), minItems=1)
    analysis: str | None = option("Analysis that the numbers come from, instead of runs", None)
    values: dict[str, str] = option(
        "Numbers of the analysis: what the field `metric` shows -> place in its result, e.g. paper.mean_strong",
        {},
    )


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
        "Names of files in config/experiments/ (without .yaml)", ("demo",), minItems=1
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
    tables: dict[str, Table] = option("Results tables by id: `snakemake results/tables/<id>.csv` makes one")
    analyses: dict[str, Analysis] = option("Analyses by name: what tables and figures of them show", {})
    figures: dict[str, Figure] = option("Figures by id: `snakemake results/figures/<id>.png` makes one", {})
    evaluations: dict[str, Evaluation] = option(
        "Training protocols by name, and changes to those of config/evaluations.yaml (merged key by key)", {}
    )
    epochs: int = option("Training epochs of evaluations that do not say", 300, minimum=1)
    beta2: float | Literal["scaled"] = option(
        "AdamW's beta2 of evaluations that do not say", 0.999, minimum=0, exclusiveMaximum=1
    )
    slc_rounding: Literal["batches", "floor"] = option(
        "What an SLC that is no multiple of the IPC means where an evaluation does not say; released code: floor",
        "batches",
    )
    labels: Labels = option("How views are drawn and labelled", Labels())
    threads: int = option("CPU threads of every job; part of the keys, because sums depend on it", 2, minimum=1)
