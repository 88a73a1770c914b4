"""Networks by name, with a head for the dataset's classes."""

import re
from typing import Any, cast

import torchvision.models
from torch import nn

from hald.errors import UserError
from hald.networks.compact import COMPACT
from hald.networks.small import BLOCKS, SmallResNet

SMALL = re.compile(r"resnet(?P<depth>\d+)(?:-w(?P<width>\d+))?")


def build_model(arch: str, classes: int, size: int) -> nn.Module:
    """The network `arch` = `<family>/<name>` for `classes` classes and `size` x `size` inputs, freshly initialised."""
    family, _, name = arch.partition("/")
    if family not in FAMILIES or not name:
        raise UserError(f"unknown network '{arch}': write <family>/<name> with a family of {', '.join(FAMILIES)}")
    return FAMILIES[family](name, classes, size)


def _small(name: str, classes: int, size: int) -> nn.Module:
    """3x3 stem, no pooling, PyTorch initialisation; `-w<n>` sets the width of the first stage."""
    if name in COMPACT:
        return COMPACT[name](classes, size)
    match = SMALL.fullmatch(name)
    if not match or int(match["depth"]) not in BLOCKS:
        known = ", ".join(f"resnet{depth}" for depth in BLOCKS)
        raise UserError(
            f"unknown network 'small/{name}': known are {known}, each also with a width, e.g. resnet10-w16, and "
            f"{', '.join(COMPACT)}"
        )
    return SmallResNet(int(match["depth"]), classes, int(match["width"] or 64))


def _sre2l(name: str, classes: int, size: int) -> nn.Module:
    """torchvision's ResNet with a 3x3 stem and no pooling, torchvision's initialisation."""
    model = _torchvision(name, classes, size)
    if not isinstance(model, torchvision.models.ResNet):
        raise UserError(f"sre2l/{name}: this family holds torchvision ResNets only, e.g. sre2l/resnet18")
    width = model.conv1.out_channels
    model.conv1 = nn.Conv2d(3, width, kernel_size=3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    model.maxpool = nn.Identity()
    return cast(nn.Module, model)


def _torchvision(name: str, classes: int, size: int) -> nn.Module:
    if name not in torchvision.models.list_models(module=torchvision.models):
        raise UserError(f"torchvision has no classification model '{name}'; see torchvision.models.list_models()")
    options: dict[str, Any] = {}
    builder = torchvision.models.get_model_builder(name)
    if name in ("googlenet", "inception_v3"):  # their second heads would change what a forward pass returns
        options = {"aux_logits": False, "init_weights": True}
    elif name.startswith("vit_"):
        options = {"image_size": size}
    model: nn.Module = builder(weights=None, num_classes=classes, **options)
    return model


def _timm(name: str, classes: int, size: int) -> nn.Module:
    import timm

    if not timm.is_model(name):
        raise UserError(f"timm has no model '{name}'; see timm.list_models()")
    config = timm.get_pretrained_cfg(name.split(".")[0])
    options: dict[str, Any] = {"img_size": size} if config is not None and config.fixed_input_size else {}
    model: nn.Module = timm.create_model(name, pretrained=False, num_classes=classes, **options)
    return model


FAMILIES = {"small": _small, "sre2l": _sre2l, "torchvision": _torchvision, "timm": _timm}
