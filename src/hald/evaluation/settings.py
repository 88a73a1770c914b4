"""Evaluations and students of an experiment, as the config describes them."""

from dataclasses import dataclass
from typing import Literal

from hald.plain import option

Order = Literal["soft", "hard", "soft-hard-soft", "hard-soft", "soft-hard", "hard-soft-hard", "alternating", "adaptive"]


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
    divergence: float | None = option(
        "Soft to hard by the labels instead of the accuracy: the soft loss on held-out crops falls by less than this "
        "share of itself over the window; empty: the accuracy decides",
        None,
        exclusiveMinimum=0,
    )


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
    label_uses: int | None = option(
        "Instead of hard_epochs: soft epochs until every stored label was used so often, hard ones for the rest. With "
        "enough labels none is left, and the training is soft alone; 30 is what the paper's first setting amounts to",
        None,
        minimum=1,
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
        "short training as 0.999 is of the shortest one whose settings are printed; empty: the experiment's",
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
    hard_temperature: float | Literal["matched"] = option(
        "Temperature of the hard stage's cross-entropy, which is times its square; matched: the one at which the "
        "teacher's labels are as confident as the smoothed class labels, so that both kinds of stages want logits of "
        "one size",
        1.0,
        exclusiveMinimum=0,
    )
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
    measure_every: int | None = option(
        "Epochs between points of the learning curve; the last epoch always is one; empty: the experiment's",
        None,
        minimum=1,
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
    published_as: str | None = option(
        "Network of config/paper whose published rates it takes and whose numbers stand beside its own, e.g. resnet18 "
        "for a smaller one; empty: rates of its arch, numbers of its own name",
        None,
    )
