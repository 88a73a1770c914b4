"""DenseNet for small images: plain 3x3 stem, no early pooling. PyTorch's default initialisation."""

import torch
from torch import Tensor, nn

from hald.networks.layers import Pooled

NAMES = ("densenet121", "densenet161", "densenet169", "densenet201")

DENSE = {  # growth and layers per block
    121: (32, (6, 12, 24, 16)),
    161: (48, (6, 12, 36, 24)),
    169: (32, (6, 12, 32, 32)),
    201: (32, (6, 12, 48, 32)),
}


def activated(channels: int, *layers: nn.Module) -> nn.Module:
    """BN and ReLU before the layers, as DenseNet has them."""
    return nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(inplace=True), *layers)


class Dense(nn.Module):
    """DenseNet's layer: `growth` new channels beside the old ones, through a bottleneck of four times as many."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            activated(inputs, nn.Conv2d(inputs, 4 * growth, 1, bias=False)),
            activated(4 * growth, nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, inputs + growth, H, W)."""
        return torch.cat([self.body(x), x], dim=1)


def build(name: str, classes: int, size: int) -> nn.Module:
    """DenseNet-BC (reduction 0.5) with a plain 3x3 stem."""
    growth, counts = DENSE[int(name.removeprefix("densenet"))]
    channels = 2 * growth
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1, bias=False)]
    for i, count in enumerate(counts):
        for _ in range(count):
            layers.append(Dense(channels, growth))
            channels += growth
        if i < len(counts) - 1:
            layers.append(activated(channels, nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)))
            channels //= 2
    return Pooled(nn.Sequential(*layers, activated(channels)), channels, classes)
