"""Evaluations and students of an experiment, as the config describes them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from hald.settings import ByName, Decay, Positive, Section, Whole


class Order(Section):
    """The stages of a training."""

    name: str


class Fixed(Order):
    """Stages whose lengths are known before the training."""

    name: Literal["soft", "hard", "soft-hard-soft", "hard-soft", "soft-hard", "hard-soft-hard"] = Field(
        description="The stages in order; the first of two parts of a kind is the smaller half"
    )


class Alternating(Order):
    """Soft and hard stages in turn."""

    name: Literal["alternating"] = Field(default="alternating", description="Soft and hard stages in turn")
    every: int = Field(default=1, ge=1, description="Epochs between changes")
    first: Literal["soft", "hard"] = Field(default="soft", description="Kind of the first stage")


class Adaptive(Order):
    """Soft-hard-soft that changes at plateaus. The paper prints none of these values."""

    name: Literal["adaptive"] = Field(default="adaptive", description="Soft-hard-soft that changes at plateaus")

    window: int = Field(default=10, ge=1, description="Epochs over which a plateau is looked for")
    accuracy: float = Field(
        default=0.05, description="Soft to hard: held-out accuracy grows by less than these points per epoch"
    )
    entropy: float = Field(
        default=0.005,
        gt=0,
        description=(
            "Hard to soft: mean prediction entropy, as a share of ln C, changes by less than this over the window"
        ),
    )
    shortest: int = Field(default=20, ge=1, description="Least epochs of every stage")
    held_out: int = Field(
        default=1, ge=1, description="Distilled images per class that are only looked at, never trained on"
    )
    divergence: float | None = Field(
        default=None,
        gt=0,
        description=(
            "Soft to hard by the labels instead of the accuracy: the soft loss on held-out crops falls by less than "
            "this share of itself over the window; empty: the accuracy decides"
        ),
    )


AnyOrder = Annotated[Fixed | Alternating | Adaptive, Field(discriminator="name"), ByName]


class Loss(Section):
    """The loss of the soft stages. Each has `options(evaluation)`: what it is computed with."""

    name: str


class Kl(Loss):
    """KL divergence from the soft labels."""

    name: Literal["kl"] = Field(default="kl", description="KL divergence")

    def options(self, evaluation: "Evaluation") -> dict[str, Any]:
        """Temperature, and whether the loss is times its square."""
        return {"temperature": evaluation.temperature, "squared": evaluation.kd_scale == "T2"}


class Joint(Loss):
    """KL divergence plus cross-entropy: the joint objective."""

    name: Literal["joint"] = Field(default="joint", description="KL plus cross-entropy")
    weight: float = Field(default=1.0, ge=0, description="Weight of the cross-entropy")

    def options(self, evaluation: "Evaluation") -> dict[str, Any]:
        """Those of KL, and the cross-entropy's."""
        return Kl().options(evaluation) | {"weight": self.weight, "smoothing": evaluation.smoothing}


class Gift(Loss):
    """GIFT's cosine similarity."""

    name: Literal["gift"] = Field(default="gift", description="GIFT's cosine")
    weight: float = Field(default=0.1, ge=0, description="Weight of the hard label beside the teacher's logits")
    label: Literal["own", "mixed"] = Field(
        default="own", description="The hard label is the image's own class, or mixed like the image"
    )

    def options(self, evaluation: "Evaluation") -> dict[str, Any]:
        """Its own."""
        return {"weight": self.weight, "mixed": self.label == "mixed"}


class Lpqld(Loss):
    """KL with a teacher whose temperature falls every few epochs, and a calibrated student (LPQLD)."""

    name: Literal["lpqld"] = Field(
        default="lpqld", description="KL with an annealed teacher and a calibrated student temperature"
    )
    factor: float = Field(
        default=0.7, gt=0, le=1, description="What the teacher's temperature is multiplied with at each step"
    )
    every: int = Field(default=30, ge=1, description="Epochs between steps")
    floor: float = Field(default=2.0, gt=0, description="Lowest temperature of the teacher")

    def options(self, evaluation: "Evaluation") -> dict[str, Any]:
        """The teacher's temperatures."""
        return {"start": evaluation.temperature, "factor": self.factor, "every": self.every, "floor": self.floor}


AnyLoss = Annotated[Kl | Joint | Gift | Lpqld, Field(discriminator="name"), ByName]

# Keys that an evaluation had once, and what they are now.
FORMER = {
    "joint_weight": "loss: {name: joint, weight: ...}",
    "gift_weight": "loss: {name: gift, weight: ...}",
    "gift_label": "loss: {name: gift, label: ...}",
    "anneal": "loss: {name: lpqld, factor: ..., every: ..., floor: ...}",
    "alternate": "order: {name: alternating, every: ...}",
    "alternate_first": "order: {name: alternating, first: ...}",
    "adaptive": "order: {name: adaptive, window: ..., accuracy: ...}",
}


class Evaluation(Section):
    """One training protocol, as the config describes it (a value per SLC where it says so)."""

    order: AnyOrder = Field(
        default=Fixed(name="soft"), description="Order of the stages: a name, or a mapping with the keys of that order"
    )
    epochs: int | None = Field(
        default=None, ge=1, description="Training epochs over all stages; empty: the experiment's"
    )
    hard_epochs: Whole | dict[int, Whole] | None = Field(
        default=None,
        description=(
            "Epochs of hard-label training, or a map from SLC to them (an SLC takes the nearest entry at or below "
            "it); empty: as published for the dataset and SLC, in proportion to `epochs`, else half of the epochs"
        ),
    )
    label_uses: int | None = Field(
        default=None,
        ge=1,
        description=(
            "Instead of hard_epochs: soft epochs until every stored label was used so often, hard ones for the rest. "
            "With enough labels none is left, and the training is soft alone; 30 is what the paper's first setting "
            "amounts to"
        ),
    )
    first_epochs: int | None = Field(
        default=None, ge=1, description="Epochs of the first stage, where its kind comes twice; empty: half"
    )
    last_epochs: int | None = Field(
        default=None, ge=1, description="Epochs of the last stage, likewise; all must add up to `epochs`"
    )
    lr: float | None = Field(
        default=None,
        gt=0,
        description=(
            "Initial learning rate; empty: as published for the dataset, student and IPC, else 0.001 (ViT: 0.0005)"
        ),
    )
    eta: float | None = Field(
        default=None,
        ge=1,
        description=(
            "Divides the phase of the cosine schedule: 1 ends at zero, 2 at half the rate; empty: as published, else 2"
        ),
    )
    weight_decay: float = Field(
        default=0.01, ge=0, description="AdamW weight decay on weights with more than one dimension"
    )
    beta2: Decay | Literal["scaled"] | None = Field(
        default=None,
        description=(
            "AdamW's decay of the second moment, which remembers about 1 / (1 - beta2) steps; scaled: as large a part "
            "of a short training as 0.999 is of the shortest one whose settings are printed; empty: the experiment's"
        ),
    )
    loss: AnyLoss = Field(
        default=Kl(), description="Loss of the soft stages: a name, or a mapping with the keys of that loss"
    )
    temperature: float = Field(default=20.0, gt=0, description="Temperature of the soft labels, teacher and student")
    kd_scale: Literal["none", "T2"] = Field(
        default="none", description="Scale of the KL term: as it is, or times T squared"
    )
    handover: Literal["carry", "reset"] = Field(
        default="carry", description="AdamW's state at a stage boundary: carried over (as released) or cleared"
    )
    smoothing: float = Field(default=0.8, ge=0, le=1, description="Label smoothing of hard labels")
    hard_temperature: Positive | Literal["matched"] = Field(
        default=1.0,
        description=(
            "Temperature of the hard stage's cross-entropy, which is times its square; matched: the one at which the "
            "teacher's labels are as confident as the smoothed class labels, so that both kinds of stages want logits "
            "of one size"
        ),
    )
    sampling: Literal["permutation", "epoch", "replacement"] = Field(
        default="permutation",
        description=(
            "How stored batches are drawn: each once per pass over the pool, distinct ones in every epoch (LPQLD), or "
            "with replacement (LPLD)"
        ),
    )
    top_k: int | None = Field(
        default=None,
        ge=1,
        description="Use only the k largest logits of every label, renormalised (LPQLD); empty: all of them",
    )
    slc_rounding: Literal["batches", "floor"] | None = Field(
        default=None,
        description=(
            "An SLC that is no multiple of the IPC: a prefix of whole batches of one more view, or whole views; "
            "empty: the experiment's"
        ),
    )
    measure_every: int | None = Field(
        default=None,
        ge=1,
        description=(
            "Epochs between points of the learning curve; the last epoch always is one; empty: the experiment's"
        ),
    )
    precision: Literal["float32", "bf16", "fp16"] = Field(
        default="float32", description="Arithmetic of the network: float32, or mixed"
    )
    compile: Literal["auto", "off", "on", "graphs"] = Field(
        default="auto",
        description="torch.compile for the student, also with CUDA graphs; auto: in trainings of 40,000 steps and more",
    )


class Student(Section):
    """One student network, as the config describes it."""

    arch: str = Field(description="Network, named as for teachers")
    lr: float | None = Field(default=None, gt=0, description="Learning rate for this student; empty: the evaluation's")
    published_as: str | None = Field(
        default=None,
        description=(
            "Network of config/paper whose published rates it takes and whose numbers stand beside its own, e.g. "
            "resnet18 for a smaller one; empty: rates of its arch, numbers of its own name"
        ),
    )
