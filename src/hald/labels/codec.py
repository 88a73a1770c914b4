"""What a codec is: one way to store a label's logits, as a module of `hald.labels.codecs`.

Softmax does not see a constant added to a row, so every codec may drop one, and any temperature can be applied on
reading. Sizes and errors: `make bench-labels`. Plans ask codecs for sizes, so their modules load no torch.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from hald import registry

if TYPE_CHECKING:
    from torch import Tensor

CODECS = "hald.labels.codecs"
Arrays = dict[str, NDArray[Any]]
Logits = NDArray[np.float32]


class Codec(Protocol):
    """Stores (n, C) logits as arrays of n rows; `k` logits of each are kept by codecs that do not keep all."""

    dtypes: Mapping[str, str]  # of the arrays, by name
    bytes_per_value: float  # about, compressed, for plans

    def width(self, classes: int, k: int) -> int:
        """Values per row of the wide arrays."""

    def encode(self, logits: Logits, k: int) -> Arrays:
        """The arrays."""

    def decode(self, rows: "Mapping[str, Tensor]", classes: int) -> "Tensor":
        """Rows of the arrays as logits (n, C) float32."""

    def half_step(self, rows: "Mapping[str, Tensor]") -> "Tensor":
        """Largest error of each row, (n, 1)."""


def codec_of(name: str) -> Codec:
    """A codec by its name."""
    return cast(Codec, registry.compute(CODECS, name))


def codec_names() -> list[str]:
    """All codecs."""
    return list(registry.names(CODECS))
