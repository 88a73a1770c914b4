"""ConvNet: three blocks of 128 channels. PyTorch's default initialisation."""

from torch import Tensor, nn

NAMES = ("convnet-w128",)


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


def build(name: str, classes: int, size: int) -> nn.Module:
    """The ConvNet of 128 channels; its head depends on the images' size."""
    return ConvNet(classes, size)
