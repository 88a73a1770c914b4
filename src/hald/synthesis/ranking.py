"""Rankings: every class's images by the teacher's loss on their best crop. RDED, patches and FADRM read them.

Per class: `mipc` images, `num_crop` square crops each; a crop's score is the teacher's cross-entropy for the true class
on the crop centred in an empty canvas. Kept are image, box and loss of the best crop of every image, lowest loss first.

Unlike the released code, the choice is seeded, and crops are scored as the 8-bit images that they become.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hald.datasets.reader import PreparedDataset, open_dataset
from hald.datasets.training_crops import CropRequest, Crops
from hald.jobs.job import Job
from hald.numerics.device import setup
from hald.numerics.random_streams import Floats, Ints, permutation, uniforms
from hald.numerics.views import CROP_WIDTH, crop_boxes, normalize
from hald.same_origin import require_same_data
from hald.squeeze.teacher import load_teacher
from hald.synthesis.spec import RankingSpec
from hald.synthesis.unit_files import Arrays, compute_units, load_unit, require_digest

BATCH = 256
SQUARE = (1.0, 1.0)
Statistics = tuple[tuple[float, ...], tuple[float, ...]]


def make(job: Job[RankingSpec]) -> None:
    """Rank the classes of a job."""
    spec, device = job.spec, setup(job.spec.threads)
    folder, teacher_folder = job.made_from[spec.dataset], job.made_from[spec.teacher]
    dataset = open_dataset(folder)
    teacher, record = load_teacher(teacher_folder, dataset.classes, job.floor, device)
    require_same_data(record["dataset_digest"], f"teacher {teacher_folder}", dataset.digest, str(folder))
    crops = Crops(dataset.train, spec.side, spec.crop_scale, SQUARE, job.workers, device)

    def ranked(label: int) -> Arrays:
        found = rank_class(spec, crops, label, teacher, (record["mean"], record["std"]))
        return found | {"dataset_digest": np.array(dataset.digest)}

    compute_units(job, ranked, device)


def rank_class(
    spec: RankingSpec, crops: Crops, label: int, teacher: nn.Module, statistics: Statistics
) -> dict[str, Ints | Floats]:
    """One class: image index (n,), box (n, 4) and loss (n,) of the best crop of each image, by loss."""
    members = crops.split.of_class(label)
    chosen = members[permutation("rded-images", spec.seed, label, len(members))[: spec.mipc]]
    index = np.repeat(chosen, spec.num_crop)
    draws = uniforms("rded-crops", spec.seed, label, len(index), CROP_WIDTH)
    requests = [
        CropRequest(index[i : i + BATCH], draws[i : i + BATCH], np.zeros(len(index[i : i + BATCH]), dtype=bool))
        for i in range(0, len(index), BATCH)
    ]
    losses = [
        score(teacher, pixels.mul(255).round_().to(torch.uint8), label, spec.size, statistics)
        for pixels in crops.batches(requests)
    ]
    best, loss = select(torch.cat(losses).cpu(), spec.num_crop)
    box = np.concatenate(
        [crop_boxes(draws[i][None], *crops.split.shape(int(index[i])), spec.crop_scale, SQUARE) for i in best]
    )
    return {"index": index[best], "box": box, "loss": loss.numpy()}


@torch.inference_mode()
def score(teacher: nn.Module, crops: Tensor, label: int, size: int, statistics: Statistics) -> Tensor:
    """Teacher's cross-entropy for `label` on 8-bit crops centred in a canvas of normalised zeros: (n,)."""
    x = normalize(crops.to(torch.float32).div(255), *statistics)
    before = (size - crops.shape[-1]) // 2
    after = size - crops.shape[-1] - before
    logits = teacher(F.pad(x, (before, after, before, after)))
    return F.cross_entropy(logits, torch.full((len(crops),), label, device=crops.device), reduction="none")


def select(loss: Tensor, num_crop: int) -> tuple[Ints, Tensor]:
    """The best crop of each image: positions among all crops, and losses, lowest first (ties: the earlier image)."""
    best, which = loss.view(-1, num_crop).min(dim=1)
    order = torch.argsort(best, stable=True)
    return (order * num_crop + which[order]).numpy(), best[order]


def by_difficulty(count: int, difficulty: str) -> Ints:
    """Ranks 0 .. count-1 in the order in which patches use them: so that n patches are the first n of more.

    easy: lowest loss first; hard: highest first; medium: by distance from the median rank, the lower one first.
    """
    ranks = np.arange(count)
    if difficulty == "easy":
        return ranks
    if difficulty == "hard":
        return ranks[::-1].copy()
    return np.argsort(np.abs(2 * ranks - (count - 1)), kind="stable")


@dataclass(frozen=True)
class Ranking:
    """A finished ranking and the dataset it is about."""

    folder: Path
    dataset: PreparedDataset
    crops: Crops

    def best(self, label: int, count: int) -> tuple[Tensor, Floats]:
        """The `count` crops of lowest loss: (count, 3, side, side) uint8, and their losses."""
        return self._cut(label, np.arange(count))

    def patches(self, label: int, difficulty: str, first: int, count: int) -> tuple[Tensor, Floats]:
        """Crops first .. first + count - 1 in the order of `difficulty`."""
        ranks = by_difficulty(len(self.unit(label)["loss"]), difficulty)
        return self._cut(label, ranks[first : first + count])

    def unit(self, label: int) -> Arrays:
        """The ranking of one class."""
        arrays = load_unit(self.folder, label)
        require_digest(arrays, self.dataset.digest, f"ranking {self.folder}")
        return arrays

    def _cut(self, label: int, ranks: Ints) -> tuple[Tensor, Floats]:
        unit = self.unit(label)
        return self.crops.cut(unit["index"][ranks], unit["box"][ranks]), unit["loss"][ranks]


def open_ranking(folder: Path, dataset: PreparedDataset, side: int, device: torch.device) -> Ranking:
    """Open a finished ranking whose crops have `side` pixels."""
    return Ranking(folder, dataset, Crops(dataset.train, side, SQUARE, SQUARE, 0, device))
