"""Specs as plain JSON values and back."""

import dataclasses
import types
import typing
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

T = TypeVar("T")


def from_dict(cls: type[T], data: dict[str, Any]) -> T:
    """Build the dataclass `cls` from plain JSON values (lists become tuples, dictionaries nested dataclasses)."""
    hints = typing.get_type_hints(cls)
    return cls(**{name: _convert(hints[name], value) for name, value in data.items()})


def to_dict(spec: Any) -> dict[str, Any]:
    """Plain JSON values of a dataclass: what rules hand to scripts and what keys are made from."""
    plain = _plain(spec)
    assert isinstance(plain, dict)
    return plain


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    return str(value) if isinstance(value, Path) else value


def _convert(hint: Any, value: Any) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        fitting = [arg for arg in args if arg is not type(None) and _fits(arg, value)]
        return _convert(fitting[0], value) if fitting else value
    if dataclasses.is_dataclass(hint):
        return value if dataclasses.is_dataclass(value) else from_dict(typing.cast(type, hint), value)
    if origin is tuple:
        return tuple(
            _convert(args[0] if len(args) == 2 and args[1] is Ellipsis else args[i], v) for i, v in enumerate(value)
        )
    if origin is dict:
        return {args[0](name): _convert(args[1], item) for name, item in value.items()}
    return hint(value) if hint in (int, float, Path) and not isinstance(value, bool) else value


def _fits(hint: Any, value: Any) -> bool:
    """Whether `value` (plain JSON) can be read as `hint`."""
    origin = typing.get_origin(hint) or hint
    if origin is Literal:
        return value in typing.get_args(hint)
    if dataclasses.is_dataclass(origin):
        return isinstance(value, dict | origin) and (not isinstance(value, dict) or _has_fields(origin, value))
    if origin is dict:
        return isinstance(value, dict)
    if origin in (tuple, list):
        return isinstance(value, list | tuple)
    if origin is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if origin is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, str if origin is Path else origin)


def _has_fields(cls: Any, value: dict[str, Any]) -> bool:
    """Whether `value` can be an instance of `cls`: no key too many, none of the required ones missing."""
    fields = dataclasses.fields(cls)
    plain = {f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING}
    return plain <= value.keys() <= {f.name for f in fields}
