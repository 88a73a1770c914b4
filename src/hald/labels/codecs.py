"""How a label's logits are stored: codecs, each a pair of pure functions.

Softmax does not see a constant added to a row, so every codec may drop one, and any temperature can be applied on
reading. Sizes and errors: `make bench-labels`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hald.errors import UserError

Arrays = dict[str, NDArray[Any]]
Logits = NDArray[np.float32]

STEP = 1 / 80  # of i16: an error below that of fp16 probabilities at C = 100 and at C = 1000
# Steps over a row's span. Stored bytes follow the entropy of q, which zstd reaches at any level and chunk size, so that
# only the step changes the size, and small numbers need no packing. Of u8, 208 instead of 255 is about 4 % fewer bytes
# at C = 1000 and 1.5 times the KL.
LEVELS = {"u8": 208, "u4": 15, "u2": 3}


@dataclass(frozen=True)
class Codec:
    """One way to store (n, C) logits as arrays of n rows."""

    dtypes: Mapping[str, str]
    width: Callable[[int, int], int]  # (classes, k) -> values per row of the wide arrays
    encode: Callable[[Logits, int], Arrays]  # (logits, k) -> arrays
    decode: Callable[[Mapping[str, Tensor], int], Tensor]  # (rows of the arrays, classes) -> (n, C) float32
    half_step: Callable[[Mapping[str, Tensor]], Tensor]  # largest error of each row, (n, 1)


def _encode_affine(logits: Logits, levels: int) -> Arrays:
    """A small number per class: q * scale + row minimum, within scale / 2."""
    low = logits.min(axis=1, keepdims=True)
    span = logits.max(axis=1, keepdims=True) - low
    scale = np.maximum(span / levels, np.finfo(np.float32).tiny).astype(np.float32)
    return {"q": np.rint((logits - low) / scale).astype(np.uint8), "scale": scale[:, 0]}


def _decode_affine(rows: Mapping[str, Tensor], _: int) -> Tensor:
    return rows["q"].to(torch.float32) * rows["scale"][:, None]


def _encode_i16(logits: Logits, _: int) -> Arrays:
    """Fixed steps around the row's middle."""
    middle = (logits.max(axis=1, keepdims=True) + logits.min(axis=1, keepdims=True)) / 2
    steps = np.rint((logits - middle) / STEP)
    if np.abs(steps).max(initial=0) > np.iinfo(np.int16).max:
        raise UserError("logits spread over more than 800 and do not fit codec i16; use u8 or f16")
    return {"q": steps.astype(np.int16)}


def _encode_f16(logits: Logits, _: int) -> Arrays:
    """Half-precision logits, centred so that large offsets cost no precision."""
    return {"q": (logits - logits.mean(axis=1, keepdims=True)).astype(np.float16)}


def _encode_topk(logits: Logits, k: int) -> Arrays:
    """The k largest logits, half precision, and their classes; largest first."""
    index = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    values = np.take_along_axis(logits, index, axis=1)
    return {"q": (values - values[:, :1]).astype(np.float16), "index": index.astype(np.uint16)}


def _decode_topk(rows: Mapping[str, Tensor], classes: int) -> Tensor:
    """Classes that were not kept get minus infinity: softmax renormalises over the kept ones (MR-k)."""
    q = rows["q"].to(torch.float32)
    return torch.full((len(q), classes), -torch.inf, device=q.device).scatter_(1, rows["index"].to(torch.int64), q)


def _float_step(rows: Mapping[str, Tensor]) -> Tensor:
    """Half the spacing of float16 at the row's largest magnitude."""
    return rows["q"].to(torch.float32).abs().amax(dim=1, keepdim=True).clamp(min=2.0**-14) * 2.0**-11


def keep_top(logits: Tensor, k: int) -> Tensor:
    """The k largest logits of each row, minus infinity elsewhere: a dense label read as LPQLD's MR-k."""
    kept = logits.topk(min(k, logits.shape[1]), dim=1)
    return torch.full_like(logits, -torch.inf).scatter_(1, kept.indices, kept.values)


def _affine(levels: int) -> Codec:
    """So many steps between a row's smallest and largest logit."""
    return Codec(
        {"q": "uint8", "scale": "float32"},
        lambda classes, k: classes,
        lambda logits, k: _encode_affine(logits, levels),
        _decode_affine,
        lambda rows: rows["scale"][:, None] / 2,
    )


CODECS = {
    **{name: _affine(levels) for name, levels in LEVELS.items()},
    "i16": Codec(
        {"q": "int16"},
        lambda classes, k: classes,
        _encode_i16,
        lambda rows, classes: rows["q"].to(torch.float32) * STEP,
        lambda rows: torch.full((len(rows["q"]), 1), STEP / 2, device=rows["q"].device),
    ),
    "f16": Codec(
        {"q": "float16"},
        lambda classes, k: classes,
        _encode_f16,
        lambda rows, classes: rows["q"].to(torch.float32),
        _float_step,
    ),
    "topk": Codec(
        {"q": "float16", "index": "uint16"}, lambda classes, k: min(k, classes), _encode_topk, _decode_topk, _float_step
    ),
}
