"""What a distilled image set is, and the pieces it is made from: rankings, class statistics, optimised units.

A key holds what matters to its method and nothing else: every method has a dataclass of its own, so that a new option
of one never moves the sets of another.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from hald.settings import Count, Part, Positive


@dataclass(frozen=True)
class Recover:
    """The optimisation that SRe2L, LPLD and FADRM share."""

    lr: Annotated[
        float, Field(ge=0, description="Initial learning rate of Adam (betas 0.5, 0.9); a cosine over all iterations")
    ] = 0.25
    budgets: Annotated[
        tuple[Count, ...], Field(min_length=1, description="Iterations of each stage; SRe2L and LPLD have one")
    ] = (4000,)
    sizes: Annotated[
        tuple[Count, ...],
        Field(
            description="Side of the images in each stage, the last being the dataset's; empty: the dataset's in all"
        ),
    ] = ()
    r_bn: Annotated[float, Field(ge=0, description="Weight of the BN term")] = 0.01
    first_bn: Annotated[float, Field(ge=0, description="Factor of the first BN layer's part")] = 10.0
    tv: Annotated[
        float, Field(ge=0, description="Weight of the total variation of the views; all published runs have 0")
    ] = 0.0
    l2: Annotated[float, Field(ge=0, description="Weight of the norm of the views; all published runs have 0")] = 0.0
    crop: Annotated[
        bool, Field(description="Random resized crop and flip in every iteration (the roll is always there)")
    ] = True
    scale: Annotated[tuple[Part, Part], Field(description="Area range of those crops")] = (0.08, 1.0)
    ratio: Annotated[tuple[Positive, Positive], Field(description="Aspect range of those crops")] = (3 / 4, 4 / 3)
    flip: Annotated[float, Field(ge=0, le=1, description="Probability of a horizontal flip")] = 0.5
    roll: Annotated[
        tuple[int, int], Field(description="Smallest and largest cyclic shift of a view, in pixels, per axis")
    ] = (0, 32)
    per_image: Annotated[
        bool, Field(description="Draw crop, flip and roll for each image; as released: one draw for the whole batch")
    ] = False
    amp: Annotated[
        bool, Field(description="bfloat16 autocast on GPU (BN statistics stay float32); no effect on CPU")
    ] = False
    compile: Annotated[
        Literal["auto", "on", "off"],
        Field(description="torch.compile; auto: where the iterations of one unit pay for it (docs/synthesis.md)"),
    ] = "auto"


@dataclass(frozen=True)
class RankingSpec:
    """Every class's images in the order of the teacher's loss on their best crop (RDED). Unit: a class."""

    dataset: str  # key of the dataset
    teacher: str  # key of the teacher
    classes: int
    size: int  # of the canvas that crops are scored in
    side: int  # of the crops
    mipc: int
    num_crop: int
    crop_scale: tuple[float, float]
    seed: int
    threads: int

    @property
    def effort(self) -> tuple[str, float]:
        """Kind and amount of work of one unit, for estimates: crops scored by this teacher."""
        return f"ranking@{self.size} {self.teacher}", self.mipc * self.num_crop


@dataclass(frozen=True)
class StatisticsSpec:
    """A teacher's BN inputs class by class over the training set (LPLD)."""

    dataset: str  # key of the dataset
    teacher: str  # key of the teacher
    kind: str  # exact or ema0.1
    classes: int
    size: int
    scale: tuple[float, float]
    ratio: tuple[float, float]
    flip: float
    batch: int
    seed: int
    threads: int

    @property
    def effort(self) -> tuple[str, float]:
        """Kind and amount of work, for estimates: passes over this dataset."""
        return f"statistics@{self.size} {self.teacher}", 1


@dataclass(frozen=True)
class Patches:
    """Real crops taken from a ranking: our reading of a step that FADRM and SRe2L++ do not publish."""

    ranking: str  # key of the ranking
    difficulty: str
    factor: int


@dataclass(frozen=True)
class Sre2l:
    """SRe2L starts from noise, SRe2L++ from patches."""

    patches: Patches | None


@dataclass(frozen=True)
class Fadrm:
    """FADRM starts from patches and blends them in again between stages."""

    patches: Patches
    alpha: float


@dataclass(frozen=True)
class Lpld:
    """LPLD optimises the images of a class together, against the class's own BN statistics."""

    ipc: int
    statistics: str  # key of the class statistics


@dataclass(frozen=True)
class UnitsSpec:
    """Optimised images. Unit k * chunks + c: image k of class chunk c (SRe2L, FADRM); unit c: class c (LPLD).

    Without an IPC where images do not depend on it, so that ten images per class are the first ten of fifty.
    """

    method: str
    dataset: str  # key of the dataset
    teachers: tuple[str, ...]  # keys of the teachers, used in turn
    arch: str  # their networks
    classes: int
    size: int
    batch: int
    own: Sre2l | Fadrm | Lpld
    recover: Recover
    seed: int
    threads: int

    @property
    def chunks(self) -> int:
        """Class chunks of an image index."""
        return -(-self.classes // self.batch)

    @property
    def patches(self) -> Patches | None:
        """The patches it starts from, if any."""
        return None if isinstance(self.own, Lpld) else self.own.patches

    @property
    def effort(self) -> tuple[str, float]:
        """Kind and amount of work of one unit, for estimates: images through this network and back."""
        images = self.own.ipc if isinstance(self.own, Lpld) else min(self.batch, self.classes)
        return f"recover {self.arch}@{self.size}", images * sum(self.recover.budgets)


@dataclass(frozen=True)
class FromDataset:
    """A random real subset."""

    resize: int | None
    seed: int


@dataclass(frozen=True)
class FromRanking:
    """RDED: the best crops of a ranking in mosaics."""

    ranking: str  # key of the ranking
    factor: int


@dataclass(frozen=True)
class FromUnits:
    """Optimised images."""

    units: str  # key of the units
    batch: int  # classes per chunk

    def count(self, images: "ImagesSpec") -> int:
        """Units that a set is made from: of LPLD a class each, of the others one image of every class of a chunk."""
        return images.classes if images.method == "lpld" else -(-images.classes // self.batch) * images.ipc


@dataclass(frozen=True)
class FromFolder:
    """Images made elsewhere; `content` is the digest of the folder (None: not there)."""

    content: str | None


@dataclass(frozen=True)
class ImagesSpec:
    """An image set resolved by the plan."""

    NOT_IDENTITY: ClassVar = ("path",)

    method: str
    dataset: str  # key of the dataset
    teachers: tuple[str, ...]  # keys of the teachers that grade the set in its record
    classes: int
    ipc: int
    size: int
    source: FromDataset | FromRanking | Patches | FromUnits | FromFolder
    threads: int
    path: str | None = None  # method: external

    @property
    def effort(self) -> tuple[str, float]:
        """Kind and amount of work, for estimates: images put together and graded."""
        return f"synthesis {self.method}@{self.size}", self.ipc * self.classes


@dataclass(frozen=True)
class PreviewSpec:
    """A sheet with images of a set, to look at."""

    images: str  # key of the image set
    ipc: int
    slug: str  # readable name of the set
