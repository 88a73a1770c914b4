"""The soft pool: whole stored batches of a label store on the device."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hald.errors import UserError
from hald.evaluation.batches import Batch
from hald.evaluation.rendering import rendered
from hald.evaluation.spec import RunSpec
from hald.labels.store import GEOMETRY, LabelStore
from hald.numerics.random_streams import Floats, Ints, generator, permutation
from hald.numerics.views import View

LOOKED_AT = 4096  # crops


def pool_ids(pool: int, per_epoch: int, seed: int, stage: int, epoch: int, sampling: str) -> Ints:
    """Stored batches of one soft epoch, as a pure function of where the training stands.

    `permutation`: the stage walks through one permutation of the pool after another, `per_epoch` batches each epoch.
    `epoch`: distinct batches in every epoch, drawn anew (a pool smaller than an epoch is gone through again).
    `replacement`: each batch drawn uniformly.
    """
    counter = stage << 32
    if sampling == "epoch":
        rng = generator("pool-epoch", seed, counter + epoch)
        return np.concatenate([rng.permutation(pool) for _ in range(-(-per_epoch // pool))])[:per_epoch]
    if sampling == "replacement":
        return generator("pool-replacement", seed, counter + epoch).integers(pool, size=per_epoch)
    first, last = epoch * per_epoch, (epoch + 1) * per_epoch
    passes = range(first // pool, (last - 1) // pool + 1)
    order = np.concatenate([permutation("pool", seed, counter + k, pool) for k in passes])
    return order[first - passes.start * pool : last - passes.start * pool]


class SoftPool:
    """The part of a label store that a run may use, in memory as bytes and decoded batch by batch.

    `labels` (N,) are the images' classes; images marked in `held` (N,) are never seen, neither as themselves nor mixed
    into another (adaptive schedule).
    """

    def __init__(
        self, store: LabelStore, spec: RunSpec, images: Tensor, labels: Tensor, held: NDArray[np.bool_] | None = None
    ) -> None:
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
        other = self.view.image[self._partners()]
        self.classes_of = [labels[torch.from_numpy(index).to(labels.device)] for index in (self.view.image, other)]
        share = self._shares()
        self.share = torch.from_numpy(share).to(images.device, torch.float32)
        self.usable = None if held is None else ~(held[self.view.image] | (held[other] & (share < 1)))

    def _partners(self) -> Ints:
        """Row of the long view whose pixels are mixed into each row."""
        at = np.arange(len(self.view.image)) % self.count
        return np.arange(len(at)) - at % self.batch + self.view.partner

    def _shares(self) -> Floats:
        """(rows,) part of each picture that is its own: one minus the clipped rectangle, or mixup's share."""
        cut = self.view.cut
        area = (cut[:, 2] - cut[:, 0]) * (cut[:, 3] - cut[:, 1])
        share = self.view.lam if self.view.mix == "mixup" else 1 - area / self.spec.size**2
        at = np.arange(len(self.view.image))
        return np.asarray(share[at // self.count * self.per_epoch + at % self.count // self.batch], dtype=np.float64)

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
            yield from self._batch(x, slice(rows.start, rows.stop))

    def crops_of(self, images: NDArray[np.bool_]) -> Batch:
        """Labelled crops of some images (N,), as one batch: all those among the first `LOOKED_AT` of the pool."""
        batches = [(i, self.rows(i)) for i in range(min(self.spec.pool, max(LOOKED_AT // self.batch, 1)))]
        parts = [
            _some(self._whole(x, slice(rows.start, rows.stop)), images[self.view.image[rows.start : rows.stop]])
            for x, rows in rendered(self.images, self.view, batches, self.spec)
        ]
        if not any(len(part.x) for part in parts):
            raise UserError(
                f"no stored crop among {len(batches)} batches shows a held-out image, by which the adaptive schedule "
                f"would decide; raise the SLC or adaptive.held_out, or leave adaptive.divergence empty"
            )
        return Batch(*(torch.cat(values) for values in zip(*(vars(part).values() for part in parts), strict=True)))

    def logits(self) -> Tensor:
        """The teacher's answers (n, C) to those of the first `LOOKED_AT` crops of the pool that may be seen."""
        count = min(self.rows(self.spec.pool - 1).stop, LOOKED_AT)
        target = self._target(slice(0, count))
        return target if self.usable is None else target[torch.from_numpy(self.usable[:count]).to(target.device)]

    def _batch(self, x: Tensor, part: slice) -> Iterator[Batch]:
        """A stored batch, or what is left of it without held-out images (nothing, if fewer than two)."""
        batch = self._whole(x, part)
        if self.usable is None:
            yield batch
        elif self.usable[part].sum() > 1:
            yield _some(batch, self.usable[part])

    def _whole(self, x: Tensor, part: slice) -> Batch:
        return Batch(x, self._target(part), self.classes_of[0][part], self.classes_of[1][part], self.share[part])

    def _target(self, part: slice) -> Tensor:
        logits = self.codec.decode({name: array[part] for name, array in self.labels.items()}, self.classes)
        return keep_top(logits, self.spec.top_k) if self.spec.top_k else logits


def keep_top(logits: Tensor, k: int) -> Tensor:
    """The k largest logits of each row, minus infinity elsewhere: a dense label read as LPQLD's MR-k."""
    kept = logits.topk(min(k, logits.shape[1]), dim=1)
    return torch.full_like(logits, -torch.inf).scatter_(1, kept.indices, kept.values)


def _some(batch: Batch, which: NDArray[np.bool_]) -> Batch:
    """The rows of a batch that are marked."""
    chosen = torch.from_numpy(np.flatnonzero(which)).to(batch.x.device)
    return Batch(*(value[chosen] for value in vars(batch).values()))
