"""What a stage is: one kind of work, which one rule does."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

S = TypeVar("S")


@dataclass(frozen=True)
class Need:
    """The first `units` units of a key."""

    stage: str
    key: str
    units: int = 1


Needs = dict[str, list[Need]]  # by the names that a rule gives its inputs


@dataclass(frozen=True)
class Blocks:
    """How the units of a stage are cut into jobs."""

    setting: str  # of `jobs` in the config, which fixes their size
    usual: int  # size while nothing was timed: suits small networks on one GPU


@dataclass(frozen=True)
class Stage(Generic[S]):
    """All that rules, `hald plan` and `hald status` know of one kind of work."""

    name: str  # of its rule
    things: str  # what `hald plan` counts
    spec: type[S]
    folder: str  # where units lie
    files: Callable[[S, int, bool], list[str]]  # there when a unit is whole; the flag: with what is kept for analyses
    needs: Callable[[S], Needs]  # what it is made from
    make: Callable[[S], str]  # the function that does the work, as module:name
    parts: Callable[[S], tuple[str, ...]] = lambda spec: ()  # of the package: whose code is behind the key
    timed: bool = True  # the spec knows the `effort` of a unit
    blocks: Blocks | None = None  # None: the work is done in one piece
    checkpoint: Callable[[S, int], tuple[str, int]] | None = None  # of a unit: its note, and the epochs of a whole one
    holds_inputs: str = ""  # file in the folder that says: what it is made from is in it
    fixed_name: bool = False  # not named by a key, so that a finished one may be out of date


Work = dict[tuple[str, str], frozenset[int]]  # unfinished units by stage and key
AnyStage = Stage[Any]
