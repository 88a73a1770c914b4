"""Training state on disk, replaced in one step: a kill at any moment leaves the last whole checkpoint."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from hald.files import write_atomic

FORMAT = 1


def save_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int, **more: Any) -> None:
    """Write model, optimiser, torch's random state and the number of finished epochs."""
    state = {
        "format": FORMAT,
        "epoch": epoch,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "more": more,
    }
    write_atomic(path, lambda temporary: torch.save(state, temporary))


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int | None:
    """Restore a checkpoint and return its epoch; None where there is none."""
    state = read_checkpoint(path)
    if state is None:
        return None
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    return int(state["epoch"])


def read_checkpoint(path: Path) -> dict[str, Any] | None:
    """The content of a checkpoint of this format, or None."""
    if not path.is_file():
        return None
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state if state.get("format") == FORMAT else None
