"""Weights on disk: safetensors written by us; foreign state dicts read without running their code."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from hald.errors import UserError
from hald.files import write_atomic


def save_weights(model: nn.Module, path: Path) -> None:
    """Write a model's state as safetensors, atomically."""
    state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    write_atomic(path, lambda temporary: save_file(state, temporary))


def read_state(path: Path) -> dict[str, Tensor]:
    """A state dict from safetensors or from a torch file (tensors only, nothing is executed)."""
    try:
        if path.suffix == ".safetensors":
            state: dict[str, Any] = dict(load_file(path))
        else:
            state = dict(torch.load(path, map_location="cpu", weights_only=True))
    except (OSError, SafetensorError, RuntimeError, ValueError, EOFError, KeyError) as error:
        raise UserError(f"cannot read weights from {path}: {type(error).__name__} {error}") from error
    except Exception as error:  # the unpickler's own kinds
        raise UserError(
            f"{path} holds more than tensors ({type(error).__name__}) and is not opened; save its state_dict() instead"
        ) from error
    for wrapper in ("state_dict", "model"):
        if isinstance(state.get(wrapper), dict):
            state = state[wrapper]
    return {name.removeprefix("module."): value for name, value in state.items() if isinstance(value, Tensor)}


def load_weights(model: nn.Module, path: Path, arch: str) -> None:
    """Fill `model` from a file that must fit it exactly."""
    found, wanted = read_state(path), model.state_dict()
    missing = [name for name in wanted if name not in found and not name.endswith("num_batches_tracked")]
    extra = sorted(found.keys() - wanted.keys())
    wrong = [name for name in wanted if name in found and found[name].shape != wanted[name].shape]
    if missing or extra:
        raise UserError(
            f"weights in {path} are not those of {arch}: {len(missing)} tensors missing (first: {missing[:1]}), "
            f"{len(extra)} unknown (first: {extra[:1]}). small/ and sre2l/ networks are not interchangeable"
        )
    if wrong:
        shapes = f"{tuple(found[wrong[-1]].shape)}, the network has {tuple(wanted[wrong[-1]].shape)}"
        raise UserError(
            f"weights in {path} do not fit {arch}: '{wrong[-1]}' is {shapes} ({len(wrong)} such). "
            f"Is it another number of classes or another network?"
        )
    model.load_state_dict(found, strict=False)
