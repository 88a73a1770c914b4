"""The BN term: statistics of a batch at the input of every BN layer against wanted ones.

    sum over layers l of w_l (|var_l - RV_l| + |mean_l - RM_l|), plain L2 norms, w = 10 for the first layer and else 1

One forward pre-hook per layer computes mean and biased variance once, in float32 also under mixed precision.
"""

import functools
from typing import Any

import torch
from torch import Tensor, nn

Targets = list[tuple[Tensor, Tensor]]  # mean and variance of every BN layer, (channels,) each
SPACE = (0, 2, 3)


def bn_layers(model: nn.Module) -> list[nn.BatchNorm2d]:
    """The network's BN layers in module order."""
    return [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]


def running_targets(model: nn.Module) -> Targets:
    """The running statistics of every BN layer."""
    targets = []
    for layer in bn_layers(model):
        assert layer.running_mean is not None
        assert layer.running_var is not None
        targets.append((layer.running_mean, layer.running_var))
    return targets


class _Moments(torch.autograd.Function):
    """Mean and variance over batch and space with the two passes over memory that they need.

    torch.var_mean is correct, but on CPU ten times slower for channels-last inputs than BN's own kernel, and its
    gradient makes several temporary copies of the activations.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        if x.device.type == "cpu":
            mean, var = torch.batch_norm_update_stats(x, None, None, 0.0)
        else:
            var, mean = torch.var_mean(x, dim=SPACE, correction=0)
        ctx.save_for_backward(x, mean)
        return mean, var

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        x, mean = ctx.saved_tensors
        count = x.numel() // x.shape[1]
        slope = 2 * gradients[1] / count
        return torch.addcmul(_channels(gradients[0] / count - slope * mean), x, _channels(slope))


def _channels(values: Tensor) -> Tensor:
    return values.view(1, -1, 1, 1)


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of every channel of (n, C, H, W), in float32: (C,), (C,)."""
    x = x.float()
    if torch.compiler.is_compiling():  # the compiler fuses this better than it could the kernel above
        var, mean = torch.var_mean(x, dim=SPACE, correction=0)
        return mean, var
    mean, var = _Moments.apply(x)
    return mean, var


class Matcher:
    """A frozen network whose forward pass also gives the BN term. `targets` may be exchanged between passes."""

    def __init__(self, model: nn.Module, first: float) -> None:
        self.model = model
        layers = bn_layers(model)
        self.targets = running_targets(model)
        self.weights = [first] + [1.0] * (len(layers) - 1)
        self.parts: list[Tensor] = []
        for i, layer in enumerate(layers):
            layer.register_forward_pre_hook(functools.partial(self._collect, i))

    def _collect(self, i: int, layer: nn.Module, inputs: tuple[Tensor]) -> None:
        mean, var = moments(inputs[0])
        wanted_mean, wanted_var = self.targets[i]
        distance = torch.linalg.vector_norm(var - wanted_var) + torch.linalg.vector_norm(mean - wanted_mean)
        self.parts.append(self.weights[i] * distance)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (n, C) in float32, and the BN term; zero for a network without BN layers."""
        self.parts = []
        logits = self.model(x).float()
        parts, self.parts = self.parts, []
        return logits, torch.stack(parts).sum() if parts else logits.new_zeros(())
