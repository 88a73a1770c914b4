"""What every job sets up before it computes: device, threads, random numbers, what an earlier attempt left."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hald.numerics import checkpoint, device


@pytest.fixture(autouse=True)
def _threads_afterwards() -> object:
    yield
    torch.set_num_threads(1)


def test_threads_are_those_of_the_specification() -> None:
    for threads in (3, 1):
        device.setup(threads)
        assert torch.get_num_threads() == threads


def test_the_device_is_told_or_the_gpu_or_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HALD_DEVICE", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device.setup(1) == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert device.setup(1) == torch.device("cuda")
    monkeypatch.setenv("HALD_DEVICE", "meta")
    assert device.setup(1) == torch.device("meta")


def test_a_job_takes_one_of_several_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[object] = []
    monkeypatch.delenv("HALD_DEVICE", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(device, "lease_device", lambda count: count - 2)
    assert device.setup(1) == torch.device("cuda", 2)
    assert taken == [torch.device("cuda", 2)]
    monkeypatch.setenv("HALD_DEVICE", "cuda:3")
    assert device.setup(1) == torch.device("cuda", 3)
    assert len(taken) == 1  # what is told is not changed


def test_random_numbers_of_an_epoch_are_addressed() -> None:
    """By stream, seed and epoch, as the README of the draws says: Philox with a hashed key and the epoch as counter."""
    checkpoint.seed_epoch("student", 7, 3)
    word = int.from_bytes(hashlib.sha256(b"student:7").digest()[:8], "little")
    drawn = np.random.Generator(np.random.Philox(key=np.array([word, 3], dtype=np.uint64))).integers(2**63)
    assert torch.initial_seed() == drawn


def test_a_checkpoint_comes_back_whole(tmp_path: Path) -> None:
    def pair(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        model = nn.Linear(3, 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (seed + 1))
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        return model, optimizer

    saved, other = pair(0), pair(1)
    path = tmp_path / "checkpoint.pt"
    assert checkpoint.load_checkpoint(path, *other) == (0, {})
    checkpoint.save_checkpoint(path, *saved, 5, note=[1, 2])
    assert json.loads(path.with_suffix(".json").read_text()) == {"epoch": 5}
    assert checkpoint.load_checkpoint(path, *other) == (5, {"note": [1, 2]})
    assert torch.equal(saved[0].weight, other[0].weight)
    assert other[1].param_groups[0]["lr"] == 0.1
    moments = [optimizer.state_dict()["state"][0]["exp_avg"] for _, optimizer in (saved, other)]
    assert torch.equal(*moments)
    state = torch.load(path)
    torch.save(state | {"format": state["format"] + 1}, path)
    assert checkpoint.load_checkpoint(path, *other) == (0, {})
