"""Memory layout of networks: channels last where it is safe. Inputs follow the weights by themselves."""

import shutil

import torch
from torch import nn


def laid_out(model: nn.Module, device: torch.device) -> nn.Module:
    """The network on the device, channels last where that is safe."""
    if not may_be_channels_last(model, device):
        return model.to(device)
    return model.to(device).to(memory_format=torch.channels_last)


def may_be_channels_last(model: nn.Module, device: torch.device) -> bool:
    """False on a CPU for networks with strided 1x1 convolutions of few channels (torch 2.14.1, four: oneDNN's backward
    pass reads beyond its memory and the process dies). torch.compile chooses this layout by itself.
    """
    return device.type != "cpu" or not any(map(_is_narrow, model.modules()))


def can_compile(model: nn.Module, device: torch.device) -> bool:
    """Whether torch.compile works here: a CPU needs a C++ compiler, and a network that survives channels last."""
    return device.type != "cpu" or (shutil.which("g++") is not None and may_be_channels_last(model, device))


def _is_narrow(module: nn.Module) -> bool:
    if not isinstance(module, nn.Conv2d):
        return False
    return module.kernel_size == (1, 1) and module.stride != (1, 1) and module.in_channels % 8 != 0
