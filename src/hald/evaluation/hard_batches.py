"""The hard stage: shuffled images, fresh crops, CutMix with the reversed batch, smoothed class targets."""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hald.evaluation.batches import Batch
from hald.evaluation.cross_entropy import smooth
from hald.evaluation.rendering import rendered
from hald.evaluation.spec import RunSpec
from hald.numerics.random_streams import permutation, uniforms
from hald.numerics.views import CROP_WIDTH, View, crop_boxes, cutmix_rectangles


class HardBatches:
    """Batches of the distilled images with their class labels, drawn anew every epoch."""

    def __init__(self, spec: RunSpec, images: Tensor, labels: Tensor) -> None:
        self.spec, self.images = spec, images
        self.targets = smooth(F.one_hot(labels, spec.classes).float(), spec.smoothing)

    def batches(self) -> list[tuple[int, range]]:
        """Rows of every batch; an odd batch drops its last image, so that every image has a partner."""
        count, size = len(self.images), self.spec.batch
        starts = range(0, count, size)
        lengths = [min(size, count - start) // 2 * 2 for start in starts]
        return [(i, range(start, start + n)) for i, (start, n) in enumerate(zip(starts, lengths, strict=True)) if n]

    def draw(self, seed: int, epoch: int) -> View:
        """One epoch's crops. `lam` is the share of the image that stays its own, corrected for clipping."""
        spec, count = self.spec, len(self.images)
        crops = uniforms("hard-crop", seed, epoch, count, CROP_WIDTH + 1)
        mixes = uniforms("hard-mix", seed, epoch, -(-count // spec.batch), 3)
        cut = cutmix_rectangles(mixes[:, 0], mixes[:, 1:3], spec.size)
        area = (cut[:, 2] - cut[:, 0]) * (cut[:, 3] - cut[:, 1])
        partner = np.zeros(count, dtype=np.int64)
        for _, rows in self.batches():
            partner[rows.start : rows.stop] = np.arange(len(rows))[::-1]
        return View(
            image=permutation("hard-order", seed, epoch, count),
            box=crop_boxes(crops[:, :CROP_WIDTH], self.images.shape[2], self.images.shape[3], spec.scale, spec.ratio),
            flip=crops[:, CROP_WIDTH] < spec.flip,
            partner=partner,
            lam=1 - area / spec.size**2,
            cut=cut,
        )

    def epoch(self, seed: int, epoch: int) -> Iterator[Batch]:
        """The batches of one hard epoch with their mixed class probabilities."""
        view, batches = self.draw(seed, epoch), self.batches()
        order = torch.from_numpy(view.image).to(self.images.device)
        shares = view.lam.tolist()
        for (number, _), (x, rows) in zip(batches, rendered(self.images, view, batches, self.spec), strict=True):
            own = self.targets[order[rows.start : rows.stop]]
            yield Batch(x, shares[number] * own + (1 - shares[number]) * own.flip(0))
