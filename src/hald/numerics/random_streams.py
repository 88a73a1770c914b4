"""Random numbers by address: (stream, seed, counter) -> a table of uniforms, the same on every machine and worker.

Row i of a table does not depend on how many rows are asked for, so growing a set never changes what was drawn before.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def generator(stream: str, seed: int, counter: int = 0) -> np.random.Generator:
    """NumPy generator for one address; `stream` keeps different uses of one seed apart."""
    word = int.from_bytes(hashlib.sha256(f"{stream}:{seed}".encode()).digest()[:8], "little")
    return np.random.Generator(np.random.Philox(key=np.array([word, counter], dtype=np.uint64)))


def uniforms(stream: str, seed: int, counter: int, rows: int, width: int) -> Floats:
    """(rows, width) uniforms in [0, 1)."""
    return generator(stream, seed, counter).random((rows, width))


def permutation(stream: str, seed: int, counter: int, n: int) -> Ints:
    """A random order of 0 .. n-1."""
    return generator(stream, seed, counter).permutation(n)
