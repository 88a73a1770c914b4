"""ResNets for small images: 3x3 stem with stride 1, no pooling (the family of the CIFAR-100 and Tiny-ImageNet tables).

`resnet10-w16` has 16 channels in its first stage, 64 if nothing is said.

PyTorch's default initialisation; stages of 1, 2, 4, 8 times the width with strides 1, 2, 2, 2; a bottleneck strides on
its 3x3 convolution; projection shortcuts of conv1x1 + BN; average over the whole map; one linear layer.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NAMES = ("resnet10", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
WIDTHS = True  # each also with a width, e.g. resnet10-w16
BLOCKS: dict[int, tuple[int, tuple[int, ...]]] = {
    # depth: (expansion, blocks per stage)
    10: (1, (1, 1, 1, 1)),
    18: (1, (2, 2, 2, 2)),
    34: (1, (3, 4, 6, 3)),
    50: (4, (3, 4, 6, 3)),
    101: (4, (3, 4, 23, 3)),
    152: (4, (3, 8, 36, 3)),
}


class Block(nn.Module):
    """Residual block: 3x3, 3x3 (expansion 1) or 1x1, 3x3, 1x1 (expansion 4)."""

    def __init__(self, inputs: int, width: int, expansion: int, stride: int) -> None:
        super().__init__()
        outputs = width * expansion
        kernels = (3, 3) if expansion == 1 else (1, 3, 1)
        strides = (stride, 1) if expansion == 1 else (1, stride, 1)
        channels = [inputs] + [width] * (len(kernels) - 1) + [outputs]
        self.convs = nn.ModuleList(
            nn.Conv2d(channels[i], channels[i + 1], k, strides[i], k // 2, bias=False) for i, k in enumerate(kernels)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(c) for c in channels[1:])
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, outputs, H / stride, W / stride)."""
        out = x
        last = len(self.convs) - 1
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            out = norm(conv(out))
            if i < last:
                out = F.relu(out, inplace=True)
        return F.relu(out + self.shortcut(x), inplace=True)


class SmallResNet(nn.Module):
    """ResNet of the given depth and width for images of 32 to 64 pixels."""

    def __init__(self, depth: int, classes: int, width: int = 64) -> None:
        super().__init__()
        expansion, counts = BLOCKS[depth]
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.stages = nn.Sequential(*_stages(width, expansion, counts))
        self.fc = nn.Linear(width * 8 * expansion, classes)

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, channels) penultimate features."""
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return torch.mean(self.stages(x), dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, classes) logits."""
        logits: Tensor = self.fc(self.features(x))
        return logits


def _stages(width: int, expansion: int, counts: Sequence[int]) -> list[nn.Module]:
    stages: list[nn.Module] = []
    inputs = width
    for i, count in enumerate(counts):
        outputs = width * 2**i
        blocks = []
        for j in range(count):
            blocks.append(Block(inputs, outputs, expansion, stride=2 if i and j == 0 else 1))
            inputs = outputs * expansion
        stages.append(nn.Sequential(*blocks))
    return stages


def build(name: str, classes: int, size: int) -> nn.Module:
    """A ResNet by depth and, after `-w`, the width of its first stage."""
    depth, _, width = name.removeprefix("resnet").partition("-w")
    return SmallResNet(int(depth), classes, int(width or 64))
