"""Networks by name, with a head for the dataset's classes.

A network's module is imported by its name, so that it belongs to the code of those that use it and of nobody else.
"""

import importlib

from torch import nn

from hald.networks.names import module_of


def build_model(arch: str, classes: int, size: int) -> nn.Module:
    """The network `arch` = `<family>/<name>` for `classes` classes and `size` x `size` inputs, freshly initialised."""
    module = importlib.import_module(module_of(arch))
    model: nn.Module = module.build(arch.partition("/")[2], classes, size)
    return model
