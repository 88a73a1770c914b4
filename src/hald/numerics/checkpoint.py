"""Training state on disk, replaced in one step: a kill at any moment leaves the last whole checkpoint."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from hald.files import write_buffered, write_json
from hald.jobs.log import log
from hald.numerics.random_streams import generator

FORMAT = 2


def save_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int, **more: Any) -> None:
    """Write model, optimiser, the number of finished epochs and whatever else the caller wants back."""
    state = {
        "format": FORMAT,
        "epoch": epoch,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "more": more,
    }
    write_buffered(path, lambda buffer: torch.save(state, buffer))
    write_json(path.with_suffix(".json"), {"epoch": epoch})  # for people who ask how far it is


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, dict[str, Any]]:
    """Restore a checkpoint: finished epochs and what else was saved; (0, {}) where there is none that fits."""
    if not path.is_file():
        return 0, {}
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged disk; torch names no one class of errors for it
        log.warning("checkpoint %s cannot be read (%s): starting from the beginning", path, error)
        return 0, {}
    if state.get("format") != FORMAT:
        return 0, {}
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    log.info("goes on after epoch %d", state["epoch"])
    return int(state["epoch"]), dict(state["more"])


def seed_epoch(stream: str, seed: int, epoch: int) -> None:
    """Set torch's generators (dropout, stochastic depth) by address, so that no random state has to be kept."""
    torch.manual_seed(int(generator(stream, seed, epoch).integers(2**63)))
