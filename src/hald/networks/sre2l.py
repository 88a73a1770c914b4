"""torchvision's ResNets with a 3x3 stem and no pooling, torchvision's initialisation."""

from typing import cast

import torchvision.models
from torch import nn

from hald.errors import UserError
from hald.networks import torchvision as original


def build(name: str, classes: int, size: int) -> nn.Module:
    """A ResNet whose stem keeps the resolution."""
    model = original.build(name, classes, size)
    if not isinstance(model, torchvision.models.ResNet):
        raise UserError(f"sre2l/{name}: this family holds torchvision ResNets only, e.g. sre2l/resnet18")
    width = model.conv1.out_channels
    model.conv1 = nn.Conv2d(3, width, kernel_size=3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    model.maxpool = nn.Identity()
    return cast(nn.Module, model)
