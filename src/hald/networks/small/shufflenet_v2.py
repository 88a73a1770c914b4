"""ShuffleNetV2 for small images: 3x3 stem with stride 1, no early pooling. PyTorch's default initialisation."""

import torch
from torch import Tensor, nn

from hald.networks.layers import Pooled, conv

NAMES = ("shufflenet_v2_x0_5",)

SHUFFLE = ((48, 3), (96, 7), (192, 3))  # channels and plain blocks of every stage, 0.5x


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


def build(name: str, classes: int, size: int) -> nn.Module:
    """ShuffleNetV2 0.5x."""
    layers, inputs = [conv(3, 24, 3)], 24
    for outputs, count in SHUFFLE:
        layers += [Shuffle(inputs, outputs, down=True), *(Shuffle(outputs, outputs, down=False) for _ in range(count))]
        inputs = outputs
    return Pooled(nn.Sequential(*layers, conv(inputs, 1024)), 1024, classes)
