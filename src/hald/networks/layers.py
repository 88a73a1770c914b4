"""Layers that several networks for small images have. PyTorch's default initialisation."""

import torch
from torch import Tensor, nn


class Pooled(nn.Module):
    """A convolutional trunk, the mean over its map, a linear head."""

    def __init__(self, trunk: nn.Module, channels: int, classes: int) -> None:
        super().__init__()
        self.trunk, self.fc = trunk, nn.Linear(channels, classes)

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, channels) penultimate features."""
        return torch.mean(self.trunk(x), dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, classes) logits."""
        logits: Tensor = self.fc(self.features(x))
        return logits


def conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1, relu: bool = True) -> nn.Module:
    """Convolution, BN and, unless told otherwise, ReLU."""
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([nn.ReLU(inplace=True)] if relu else []))
