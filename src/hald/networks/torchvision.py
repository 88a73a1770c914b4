"""torchvision's classification networks."""

from typing import Any

import torchvision.models
from torch import nn

from hald.errors import UserError


def build(name: str, classes: int, size: int) -> nn.Module:
    """A network of torchvision, freshly initialised."""
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
