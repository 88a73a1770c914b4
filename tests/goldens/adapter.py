"""What the goldens know of the package: how the pipeline's networks are exchanged for one that can be followed by hand.

Everything else they reach through YAML (tests/chain.py) and read from the results with other people's libraries.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import hald.analysis.run
import hald.evaluation.train  # noqa: F401
from hald import registry
from hald.code_digests import closure, entry_modules, read_sources
from hald.labels.codec import codec_of
from hald.networks.build import build_model
from hald.networks.names import module_of

registry.plugins("hald.analysis.kinds", "compute")  # what builds networks is here before they are exchanged

# The parts of the package that compute with networks, and those that train students.
SOURCES = read_sources()
BEHIND = {part: closure(entries, SOURCES) for part, entries in entry_modules(SOURCES).items()}
NETWORKS = tuple(part for part, modules in BEHIND.items() if "hald.networks.build" in modules)
TRAINED = tuple(part for part, modules in BEHIND.items() if "hald.evaluation.train" in modules)


@contextlib.contextmanager
def networks(make: Callable[[int], nn.Module]) -> Iterator[None]:
    """Let every module that builds networks build `make(classes)` instead."""

    def built(arch: str, classes: int, size: int) -> nn.Module:
        return make(classes)

    places = [m for name, m in sys.modules.items() if name.startswith("hald") and vars(m).get("build_model")]
    for module in places:
        module.build_model = built  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in places:
            module.build_model = build_model  # type: ignore[attr-defined]


def part_of(arch: str) -> str:
    """The part of the package that builds a network."""
    return f"network.{module_of(arch).rpartition('.')[2]}"


def build(arch: str, classes: int, size: int) -> nn.Module:
    """One of the package's networks, freshly initialised."""
    return build_model(arch, classes, size)


def encode(codec: str, logits: NDArray[np.float32], k: int) -> dict[str, NDArray[Any]]:
    """The arrays in which a codec stores logits (n, C)."""
    return codec_of(codec).encode(logits, k)


def decode(codec: str, arrays: Mapping[str, NDArray[Any]], classes: int) -> NDArray[np.float32]:
    """The logits that are read back."""
    rows = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return np.asarray(codec_of(codec).decode(rows, classes))


def half_step(codec: str, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """How far the logits that are read back may be from those that were stored, row by row."""
    return np.asarray(codec_of(codec).half_step({name: torch.from_numpy(array) for name, array in arrays.items()}))
