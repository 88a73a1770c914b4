"""Label pruning baselines read from the same store: LPLD's first batches, LPQLD's largest logits."""

from pathlib import Path

import numpy as np
import torch

from conftest import labels_spec, make_labels, run_spec
from hald.evaluation.soft_pool import SoftPool, pool_ids
from hald.labels.store import LabelStore


def pool_of(store: LabelStore, **changes: object) -> SoftPool:
    return SoftPool(store, run_spec(**changes), torch.from_numpy(store.images()), torch.arange(10).repeat_interleave(2))


def stored_logits(store: LabelStore, batch: int) -> np.ndarray:
    """Logits of a stored batch straight from the u8 arrays: batches of 8, 8 and 4 in each view."""
    view, index = divmod(batch, 3)
    rows = slice(index * 8, min(index * 8 + 8, 20))
    parts = store.read(["q", "scale"], view + 1)
    return np.asarray(parts["q"][view, rows].astype(np.float32) * parts["scale"][view, rows, None])


def test_lpld_draws_the_first_batches_with_replacement_and_nothing_else(store: Path) -> None:
    opened = LabelStore(store)
    pool = pool_of(opened, pool=4, sampling="replacement")
    seen = set()
    for epoch in range(20):
        ids = pool_ids(4, 3, 0, 0, epoch, "replacement")
        batches = list(pool.epoch(seed=0, stage=0, epoch=epoch))
        assert len(batches) == 3
        for number, batch in zip(ids, batches, strict=True):
            assert np.array_equal(batch.target.numpy(), stored_logits(opened, int(number)))
        seen |= set(ids.tolist())
    assert seen == {0, 1, 2, 3}
    assert any(len(set(pool_ids(4, 3, 0, 0, epoch, "replacement"))) < 3 for epoch in range(20))


def test_lpld_does_not_read_views_beyond_its_pool(store: Path) -> None:
    (store / "views/00001.json").unlink()
    assert len(list(pool_of(LabelStore(store), pool=3, sampling="replacement").epoch(0, 0, 0))) == 3


def test_lpqld_keeps_the_largest_logits_and_renormalises_over_them(store: Path) -> None:
    opened = LabelStore(store)
    ids = pool_ids(6, 3, 0, 0, 0, "permutation")
    for number, batch in zip(ids, pool_of(opened, top_k=3).epoch(0, 0, 0), strict=True):
        probability = torch.softmax(batch.target / 20, dim=1).numpy()
        for row, p in zip(stored_logits(opened, int(number)), probability, strict=True):
            kept = np.argsort(-row, kind="stable")[:3]
            assert (p > 0).sum() == 3
            expected = np.exp(np.sort(row)[-3:] / 20)
            np.testing.assert_allclose(np.sort(p)[-3:], expected / expected.sum(), rtol=1e-5)
            if len(set(row[kept])) == 3 and np.sort(row)[-4] < row[kept[-1]]:  # no ties in the stored bytes
                assert set(np.flatnonzero(p)) == set(kept)


def test_a_top_k_store_gives_the_same_labels_as_a_dense_one(real_set: Path, teacher: Path, tmp_path: Path) -> None:
    dense, pruned = (
        LabelStore(make_labels(labels_spec(**changes), real_set, [teacher], tmp_path / f"{name}.zarr", range(2)))
        for name, changes in (("dense", {"codec": "f16"}), ("pruned", {"codec": "topk", "top_k": 3}))
    )
    pairs = zip(pool_of(dense, top_k=3).epoch(0, 0, 0), pool_of(pruned).epoch(0, 0, 0), strict=True)
    for a, b in pairs:
        assert torch.equal(a.x, b.x)
        p, q = (torch.softmax(batch.target / 20, dim=1) for batch in (a, b))
        assert (p > 0).sum(dim=1).tolist() == (q > 0).sum(dim=1).tolist() == [3] * len(p)
        assert (p - q).abs().max() < 1e-4
