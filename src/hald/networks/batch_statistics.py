"""Batch normalisation with the statistics of each stored batch (batch-specific soft labels, BSSL)."""

import contextlib
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@contextlib.contextmanager
def batch_statistics(model: nn.Module, groups: int) -> Iterator[None]:
    """Let BN layers, and only they, normalise each of `groups` equal parts of their input by its own mean and variance.

    Several stored batches thus share one forward pass. Dropout stays off and running statistics stay as they are,
    unlike with `model.train()`.
    """
    layers = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    for layer in layers:
        layer.forward = _plain(layer, groups) if type(layer) in PLAIN else _own(layer, groups)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _plain(layer: _BatchNorm, groups: int) -> Callable[[Tensor], Tensor]:
    """On a CPU group by group, so that each stays in the cache; else all at once, in few launches."""
    return lambda x: group_by_group(layer, groups, x) if x.device.type == "cpu" else all_at_once(layer, groups, x)


def group_by_group(layer: _BatchNorm, groups: int, x: Tensor) -> Tensor:
    """Each group normalised alone."""
    weight, bias, eps = layer.weight, layer.bias, layer.eps
    return torch.cat([F.batch_norm(part, None, None, weight, bias, True, eps=eps) for part in x.chunk(groups)])


def all_at_once(layer: _BatchNorm, groups: int, x: Tensor) -> Tensor:
    """Every group becomes channels of its own."""
    size, channels, space = len(x) // groups, x.shape[1], x.shape[2:]
    apart = x.reshape(groups, size, channels, *space).transpose(0, 1).reshape(size, groups * channels, *space)
    weight = None if layer.weight is None else layer.weight.repeat(groups)
    bias = None if layer.bias is None else layer.bias.repeat(groups)
    out = F.batch_norm(apart, None, None, weight, bias, training=True, eps=layer.eps)
    return out.reshape(size, groups, channels, *space).transpose(0, 1).reshape(x.shape)


def _own(layer: _BatchNorm, groups: int) -> Callable[[Tensor], Tensor]:
    """A layer that does more than normalise (timm's BN with activation): its own forward, group by group."""
    original = layer.forward

    def forward(x: Tensor) -> Tensor:
        kept = {name: value.clone() for name, value in layer.named_buffers(recurse=False)}
        layer.training = True
        try:
            return torch.cat([original(part) for part in x.chunk(groups)])
        finally:
            layer.training = False
            for name, value in kept.items():
                getattr(layer, name).copy_(value)

    return forward
