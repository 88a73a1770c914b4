"""Units -> jobs: a block is the units of one job, and a receipt in its folder says that it is done.

A receipt keeps its block as it is; the rest is cut by today's size. A receipt some of whose units are gone counts no
more, and its name is not used again: Snakemake takes an output that exists for finished.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

NAME = re.compile(r"(\d{5})-(\d{5})(?:\+\d+)?")


@dataclass(frozen=True)
class Block:
    """Units first .. last; `name` is that of the receipt."""

    first: int
    last: int
    name: str

    @classmethod
    def named(cls, name: str) -> "Block":
        """The block that a receipt is of."""
        match = NAME.fullmatch(name)
        assert match, name
        return cls(int(match[1]), int(match[2]), name)

    @property
    def units(self) -> range:
        """Numbers of its units."""
        return range(self.first, self.last + 1)


def cut(needed: int, size: int, receipts: Collection[str], is_whole: Callable[[int], bool]) -> list[Block]:
    """Blocks that cover the units 0 .. needed - 1, each unit once; `receipts` are the names of those that exist."""
    valid: list[Block] = []
    for block in sorted(
        (Block.named(name) for name in receipts if NAME.fullmatch(name)), key=lambda b: (b.first, b.name)
    ):
        if block.first < needed and (not valid or block.first > valid[-1].last) and all(map(is_whole, block.units)):
            valid.append(block)
    blocks: list[Block] = []
    start = 0
    for border in (*valid, None):
        end = border.first if border else needed
        blocks += [_new(first, min(first + size, end) - 1, receipts) for first in range(start, end, size)]
        if border:
            blocks.append(border)
            start = border.last + 1
    return blocks


def _new(first: int, last: int, taken: Collection[str]) -> Block:
    """A block whose name no receipt has."""
    name = plain = f"{first:05d}-{last:05d}"
    number = 0
    while name in taken:
        number += 1
        name = f"{plain}+{number}"
    return Block(first, last, name)
