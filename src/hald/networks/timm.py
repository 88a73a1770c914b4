"""timm's networks."""

from typing import Any

import timm
from torch import nn

from hald.errors import UserError


def build(name: str, classes: int, size: int) -> nn.Module:
    """A network of timm, freshly initialised."""
    if not timm.is_model(name):
        raise UserError(f"timm has no model '{name}'; see timm.list_models()")
    config = timm.get_pretrained_cfg(name.split(".")[0])
    options: dict[str, Any] = {"img_size": size} if config is not None and config.fixed_input_size else {}
    model: nn.Module = timm.create_model(name, pretrained=False, num_classes=classes, **options)
    return model
