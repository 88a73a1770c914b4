"""The soft pool: whole stored batches of a label store on the device."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from hald.draws import Ints, generator, permutation
from hald.labels.codec import keep_top
from hald.labels.store import GEOMETRY, LabelStore
from hald.specs.run import RunSpec
from hald.train.batches import Batch, rendered
from hald.views import View


def pool_ids(pool: int, per_epoch: int, seed: int, stage: int, epoch: int, sampling: str) -> Ints:
    """Stored batches of one soft epoch, as a pure function of where the training stands.

    `permutation`: the stage walks through one permutation of the pool after another, `per_epoch` batches each epoch.
    `replacement`: each batch drawn uniformly.
    """
    counter = stage << 32
    if sampling == "replacement":
        return generator("pool-replacement", seed, counter + epoch).integers(pool, size=per_epoch)
    first, last = epoch * per_epoch, (epoch + 1) * per_epoch
    passes = range(first // pool, (last - 1) // pool + 1)
    order = np.concatenate([permutation("pool", seed, counter + k, pool) for k in passes])
    return order[first - passes.start * pool : last - passes.start * pool]


class SoftPool:
    """The part of a label store that a run may use, in memory as bytes and decoded batch by batch."""

    def __init__(self, store: LabelStore, spec: RunSpec, images: Tensor) -> None:
        self.spec, self.images = spec, images
        self.per_epoch, self.count, self.batch = store.header.batches, store.header.count, store.header.batch
        views = -(-spec.pool // self.per_epoch)
        self.codec, self.classes = store.codec, len(store.header.classes)
        parts = store.read([*store.codec.dtypes, *GEOMETRY], views)
        self.labels = {
            name: torch.from_numpy(parts[name]).flatten(0, 1).to(images.device) for name in store.codec.dtypes
        }
        # all views as one long view, batches numbered through
        self.view = View(
            image=parts["image"].reshape(-1).astype(np.int64),
            box=parts["box"].reshape(-1, 4).astype(np.int64),
            flip=parts["flip"].reshape(-1) > 0,
            partner=parts["partner"].reshape(-1).astype(np.int64),
            lam=parts["lam"].reshape(-1),
            cut=parts["cut"].reshape(-1, 4).astype(np.int64),
            mix=store.header.view_settings["mix"],
        )

    def rows(self, batch: int) -> range:
        """Rows of a stored batch in the long view."""
        view, index = divmod(batch, self.per_epoch)
        first = view * self.count + index * self.batch
        return range(first, min(first + self.batch, (view + 1) * self.count))

    def epoch(self, seed: int, stage: int, epoch: int) -> Iterator[Batch]:
        """The batches of one soft epoch, in their drawn order, with the teacher's logits."""
        ids = pool_ids(self.spec.pool, self.per_epoch, seed, stage, epoch, self.spec.sampling)
        batches = [(int(i), self.rows(int(i))) for i in ids]
        for x, rows in rendered(self.images, self.view, batches, self.spec):
            stored = {name: array[rows.start : rows.stop] for name, array in self.labels.items()}
            logits = self.codec.decode(stored, self.classes)
            yield Batch(x, keep_top(logits, self.spec.top_k) if self.spec.top_k else logits)
