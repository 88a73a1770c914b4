"""Batch normalisation with the statistics of each stored batch (batch-specific soft labels, BSSL)."""

import contextlib
from collections.abc import Iterator

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextlib.contextmanager
def batch_statistics(model: nn.Module, batch: int) -> Iterator[None]:
    """Let BN layers, and only they, use the statistics of consecutive groups of `batch` inputs.

    Several stored batches go through one forward pass, each normalised by its own mean and variance. Dropout stays off
    and running statistics stay as they are, unlike `model.train()`. Inputs must be whole groups.
    """
    layers = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    for layer in layers:
        layer.forward = _grouped(layer, batch)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _grouped(layer: _BatchNorm, batch: int) -> "type[Tensor]":
    def forward(x: Tensor) -> Tensor:
        groups = max(len(x) // batch, 1)
        assert groups == 1 or len(x) == groups * batch, "whole batches only"
        size, channels, space = len(x) // groups, x.shape[1], x.shape[2:]
        # (groups * size, C, ...) -> (size, groups * C, ...): every group becomes channels of its own
        apart = x.reshape(groups, size, channels, *space).transpose(0, 1).reshape(size, groups * channels, *space)
        weight = None if layer.weight is None else layer.weight.repeat(groups)
        bias = None if layer.bias is None else layer.bias.repeat(groups)
        out = F.batch_norm(apart, None, None, weight, bias, training=True, eps=layer.eps)
        return out.reshape(size, groups, channels, *space).transpose(0, 1).reshape(x.shape)

    return forward  # type: ignore[return-value]
