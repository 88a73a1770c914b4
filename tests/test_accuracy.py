"""Accuracy on answers that are known: what is published is a share of these."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hald.datasets.reader import open_dataset
from hald.numerics import accuracy as measure
from hald.numerics.accuracy import TestSet, accuracy

CPU = torch.device("cpu")
MEAN, STD = (0.1, 0.2, 0.3), (0.5, 0.25, 0.2)


class Answers(nn.Module):
    """Returns the next rows of a table of logits, and notes what it was shown."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits, self.seen, self.modes = logits, [], []

    def forward(self, x: Tensor) -> Tensor:
        start = sum(len(part) for part in self.seen)
        self.seen.append(x)
        self.modes.append(self.training)
        return self.logits[start : start + len(x)]


def with_rank(ranks: list[int], labels: list[int], classes: int) -> Tensor:
    """Logits whose row i has `ranks[i]` classes above its label."""
    logits = torch.zeros(len(ranks), classes)
    for row, rank, label in zip(logits, ranks, labels, strict=True):
        others = [c for c in range(classes) if c != label]
        order = [*others[:rank], label, *others[rank:]]
        row[torch.tensor(order)] = torch.arange(classes, 0, -1, dtype=torch.float32)
    return logits


def measured(ranks: list[int], classes: int = 10, batch: int = 256) -> tuple[tuple[float, float], Answers]:
    labels = [(3 * i + 1) % classes for i in range(len(ranks))]
    pixels = torch.arange(len(ranks) * 12, dtype=torch.uint8).view(-1, 3, 2, 2)
    network = Answers(with_rank(ranks, labels, classes)).train()
    return accuracy(network, TestSet(pixels, torch.tensor(labels)), MEAN, STD, batch), network


@pytest.mark.parametrize(
    ("ranks", "top1", "top5"),
    [
        ([0, 0, 0, 0], 100.0, 100.0),
        ([0, 1, 4, 5], 25.0, 75.0),
        ([9, 5, 6, 7], 0.0, 0.0),
        ([0, 4, 9], 100 / 3, 200 / 3),
    ],
)
@pytest.mark.parametrize("batch", [1, 3, 256])
def test_top1_and_top5(ranks: list[int], top1: float, top5: float, batch: int) -> None:
    """A label is a hit for top-5 with at most four classes above it, whatever the batches."""
    found, _ = measured(ranks, batch=batch)
    assert found == pytest.approx((top1, top5))


def test_every_image_counts_once() -> None:
    """Also those of a short last batch: 5 images in batches of 2, the last one alone is right."""
    found, network = measured([7, 7, 7, 7, 0], batch=2)
    assert found == (20.0, 20.0)
    assert [len(part) for part in network.seen] == [2, 2, 1]


def test_few_classes_are_all_among_the_first_five() -> None:
    assert measured([0, 1, 2], classes=3)[0] == (pytest.approx(100 / 3), 100.0)


def test_the_network_is_in_eval_mode() -> None:
    _, network = measured([0, 0, 0], batch=2)
    assert network.modes == [False, False]


def test_pixels_are_normalised_by_channel() -> None:
    _, network = measured([0, 0])
    pixels = np.arange(24, dtype=np.float64).reshape(2, 3, 2, 2)
    expected = (pixels / 255 - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))
    assert network.seen[0].numpy() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("resident", [2**31, 0])
def test_a_split_is_read_in_its_order(digits: Path, resident: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept on the device if it is small, else read from the disk batch by batch: the same pixels and labels."""
    monkeypatch.setattr(measure, "RESIDENT", resident)
    test = open_dataset(digits).test
    split = TestSet.of(test.pixels, test.labels, CPU)
    assert isinstance(split.pixels, Tensor) == bool(resident)
    assert np.array_equal(split.batch(3, 8).numpy(), np.load(digits / "test.npy")[3:8])
    assert np.array_equal(split.labels.numpy(), np.load(digits / "test_labels.npy"))
