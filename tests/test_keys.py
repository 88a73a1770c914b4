"""Keys: what they are made from, and what they leave out. Artefacts of different origin are refused."""

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import pytest

from hald.errors import UserError
from hald.evaluation.spec import Phase
from hald.keys import canonical, identity, key_of
from hald.same_origin import require_same_classes


def test_keys_depend_on_stage_parameters_and_code() -> None:
    keys = {key_of("a", Phase("soft", 1), "x"), key_of("b", Phase("soft", 1), "x")}
    keys |= {key_of("a", Phase("soft", 2), "x"), key_of("a", Phase("soft", 1), "y")}
    assert len(keys) == 4
    assert all(len(key) == 10 and int(key, 16) >= 0 for key in keys)


def test_a_key_is_a_digest_of_json_that_nobody_may_change() -> None:
    """Written out, because a change of one blank would make all finished work anew."""
    text = '["a",{"epochs":1,"kind":"soft"},"x"]'
    assert key_of("a", Phase("soft", 1), "x") == hashlib.sha256(text.encode()).hexdigest()[:10]
    assert canonical({"b": 0.5, "a": ["é", None, True]}) == '{"a":["é",null,true],"b":0.5}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical(float("nan"))


@dataclass(frozen=True)
class Inner:
    weight: float = 1.0
    clipped: bool = False
    LATER: ClassVar = {"clipped": False}


@dataclass(frozen=True)
class Outer:
    epochs: int
    root: str = ""
    momentum: float = 0.9
    parts: tuple[Inner, ...] = ()
    NOT_IDENTITY: ClassVar = ("root",)
    LATER: ClassVar = {"momentum": 0.5}


def test_a_field_added_later_counts_where_it_differs_from_its_frozen_default() -> None:
    """The frozen default decides, not today's, also in what a spec is made of."""
    assert identity(Outer(3, momentum=0.5)) == {"epochs": 3, "parts": []}
    assert identity(Outer(3)) == {"epochs": 3, "momentum": 0.9, "parts": []}
    whole = identity(Outer(3, "there", 0.5, (Inner(), Inner(2.0, True))))
    assert whole == {"epochs": 3, "parts": [{"weight": 1.0}, {"weight": 2.0, "clipped": True}]}


def test_different_class_orders_are_named() -> None:
    with pytest.raises(
        UserError, match=r"a has class order \w{4} \(2 classes, number 0 is 'cat'\), b has .*'dog'.*Mend it"
    ):
        require_same_classes(["cat", "dog"], "a", ["dog", "cat"], "b", "Mend it.")
    with pytest.raises(UserError, match="3 classes, number 2 is 'emu'"):
        require_same_classes(["cat", "dog"], "a", ["cat", "dog", "emu"], "b", "")
