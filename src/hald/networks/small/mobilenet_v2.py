"""MobileNetV2 for small images: 3x3 stem with stride 1, ReLU, no dropout. PyTorch's default initialisation."""

from torch import Tensor, nn

from hald.networks.layers import Pooled, conv

NAMES = ("mobilenet_v2",)

MOBILE = (  # expansion, channels, blocks, stride
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


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


def build(name: str, classes: int, size: int) -> nn.Module:
    """MobileNetV2 with ReLU, strides for small images and no dropout."""
    layers, inputs = [conv(3, 32, 3)], 32
    for expansion, outputs, count, stride in MOBILE:
        for i in range(count):
            layers.append(Inverted(inputs, outputs, expansion, stride if i == 0 else 1))
            inputs = outputs
    return Pooled(nn.Sequential(*layers, conv(inputs, 1280)), 1280, classes)
