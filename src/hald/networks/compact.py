"""MobileNetV2, ShuffleNetV2, DenseNet and ConvNet for small images: 3x3 stems with stride 1, no early pooling.

They belong to the family of the CIFAR-100 and Tiny-ImageNet tables, with PyTorch's default initialisation. Each has
`features` (B, 3, H, W) -> (B, channels) and a linear head `fc`.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

MOBILE = (  # expansion, channels, blocks, stride
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
SHUFFLE = ((48, 3), (96, 7), (192, 3))  # channels and plain blocks of every stage, 0.5x
DENSE = {  # growth and layers per block
    121: (32, (6, 12, 24, 16)),
    161: (48, (6, 12, 36, 24)),
    169: (32, (6, 12, 32, 32)),
    201: (32, (6, 12, 48, 32)),
}


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


class Inverted(nn.Module):
    """Inverted residual: widen, depthwise 3x3, project. Stride 1 has a shortcut, projected if channels change."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.body = nn.Sequential(
            conv(inputs, wide), conv(wide, wide, 3, stride, groups=wide), conv(wide, outputs, relu=False)
        )
        self.shortcut: nn.Module | None = None
        if stride == 1:
            self.shortcut = nn.Identity() if inputs == outputs else conv(inputs, outputs, relu=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, outputs, H / stride, W / stride)."""
        out: Tensor = self.body(x)
        return out if self.shortcut is None else out + self.shortcut(x)


def mobilenet_v2(classes: int) -> nn.Module:
    """MobileNetV2 with ReLU, strides for small images and no dropout."""
    layers, inputs = [conv(3, 32, 3)], 32
    for expansion, outputs, count, stride in MOBILE:
        for i in range(count):
            layers.append(Inverted(inputs, outputs, expansion, stride if i == 0 else 1))
            inputs = outputs
    return Pooled(nn.Sequential(*layers, conv(inputs, 1280)), 1280, classes)


class Shuffle(nn.Module):
    """ShuffleNetV2's block: half of the channels pass (or, going down, are halved in size), then channels shuffle."""

    def __init__(self, inputs: int, outputs: int, down: bool) -> None:
        super().__init__()
        half, taken = outputs // 2, inputs if down else inputs // 2
        stride = 2 if down else 1
        self.down = down
        self.body = nn.Sequential(
            conv(taken, half), conv(half, half, 3, stride, groups=half, relu=False), conv(half, half)
        )
        halving = [conv(inputs, inputs, 3, 2, groups=inputs, relu=False), conv(inputs, half)]
        self.side = nn.Sequential(*(halving if down else []))

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, outputs, H, W), or half of H and W."""
        kept, changed = (x, x) if self.down else x.chunk(2, dim=1)
        out = torch.cat([self.side(kept), self.body(changed)], dim=1)
        batch, channels, height, width = out.shape
        return out.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(out.shape)


def shufflenet_v2_x0_5(classes: int) -> nn.Module:
    """ShuffleNetV2 0.5x."""
    layers, inputs = [conv(3, 24, 3)], 24
    for outputs, count in SHUFFLE:
        layers += [Shuffle(inputs, outputs, down=True), *(Shuffle(outputs, outputs, down=False) for _ in range(count))]
        inputs = outputs
    return Pooled(nn.Sequential(*layers, conv(inputs, 1024)), 1024, classes)


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


def densenet(depth: int, classes: int) -> nn.Module:
    """DenseNet-BC (reduction 0.5) with a plain 3x3 stem."""
    growth, counts = DENSE[depth]
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


class ConvNet(nn.Module):
    """Three times: 3x3 convolution of 128 channels, normalisation of every channel, ReLU, average pooling."""

    def __init__(self, classes: int, size: int, width: int = 128) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs in (3, width, width):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.GroupNorm(width, width), nn.ReLU(), nn.AvgPool2d(2)]
        self.trunk, self.fc = nn.Sequential(*layers), nn.Linear(width * (size // 8) ** 2, classes)

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, channels) penultimate features."""
        flat: Tensor = self.trunk(x).flatten(1)
        return flat

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, classes) logits."""
        logits: Tensor = self.fc(self.features(x))
        return logits


COMPACT: dict[str, Callable[[int, int], nn.Module]] = {
    "mobilenet_v2": lambda classes, size: mobilenet_v2(classes),
    "shufflenet_v2_x0_5": lambda classes, size: shufflenet_v2_x0_5(classes),
    "convnet-w128": ConvNet,
    "densenet121": lambda classes, size: densenet(121, classes),
    "densenet161": lambda classes, size: densenet(161, classes),
    "densenet169": lambda classes, size: densenet(169, classes),
    "densenet201": lambda classes, size: densenet(201, classes),
}
