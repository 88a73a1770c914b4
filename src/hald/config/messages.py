"""What pydantic refuses, in our words: the place as YAML has it, what was found, what is expected, what to type."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import ErrorDetails

from hald.config.document import alternatives, variants
from hald.errors import suggest
from hald.evaluation.settings import FORMER

Schema = Mapping[str, Any]

UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
KEYS = (*UNKNOWN, "missing")  # errors about a key, which ends their path
LIMITS = {
    "greater_than_equal": ("ge", "less than the minimum of"),
    "greater_than": ("gt", "less than or equal to the minimum of"),
    "less_than_equal": ("le", "greater than the maximum of"),
    "less_than": ("lt", "greater than or equal to the maximum of"),
}
TYPES = {"int": "integer", "float": "number", "string": "string", "bool": "boolean", "tuple": "array"}  # or an object


@dataclass(frozen=True)
class Spot:
    """The part of a config that an error is about."""

    path: tuple[str | int, ...]
    choice: str  # "method 'real'" where the part is one of several kinds
    known: tuple[str, ...]  # its keys, where it has keys of its own
    meaning: str

    @property
    def place(self) -> str:
        """In words."""
        return ".".join(map(str, self.path)) or "top level"


def spot_of(loc: Sequence[str | int], content: Any, schema: Schema) -> Spot:
    """Follow pydantic's path, which also names the members of unions that it tried."""
    path: list[str | int] = []
    found, choice, meaning = alternatives(schema, schema), "", ""
    for part in loc:
        if tagged := _tagged(found, part, content):
            found = alternatives(schema, {"$ref": tagged["discriminator"]["mapping"][part]})
            key = tagged["discriminator"]["propertyName"]
            choice = f"{path[-1] if key == 'name' else key} '{part}'"
        elif _holds(content, part):
            content = content[part]
            inner = [node for each in found if (node := _below(each, part)) is not None]
            meaning = next((node["description"] for node in inner if "description" in node), "")
            found, choice = [one for node in inner for one in alternatives(schema, node)], ""
            path.append(part)
    return Spot(tuple(path), choice, tuple(name for each in found for name in each.get("properties", ())), meaning)


def _tagged(found: Sequence[Schema], part: str | int, content: Any) -> Schema | None:
    for each in found:
        if variants(each) and isinstance(content, dict | str):
            key = each["discriminator"]["propertyName"]
            if part == (content if isinstance(content, str) else content.get(key)):
                return each
    return None


def _holds(content: Any, part: str | int) -> bool:
    if isinstance(content, list):
        return isinstance(part, int) and part < len(content)
    return isinstance(content, dict) and part in content


def _below(node: Schema, part: str | int) -> Schema | None:
    if isinstance(part, int):
        inner = node.get("items")
    else:
        inner = node.get("properties", {}).get(part, node.get("additionalProperties"))
    return inner if isinstance(inner, dict) else None


def explain(errors: Sequence[ErrorDetails], content: Any, schema: Schema) -> list[str]:
    """One message for each place, and for each key that is unknown or missing there."""
    said: dict[tuple[str, str, str], dict[str, None]] = {}
    spots = [_spot(error, content, schema) for error in errors]
    for error, spot in zip(errors, spots, strict=True):
        message = _message(error, spot)
        is_key = error["type"] in KEYS
        if message and (is_key or not any(_is_inside(other, spot) for other in spots)):
            about = (_place(error, spot), "" if is_key else spot.meaning, message if is_key else "")
            said.setdefault(about, {})[message] = None
    return [
        f"{place}: {'; '.join(messages)}" + (f" ({meaning})" if meaning else "")
        for (place, meaning, _), messages in said.items()
    ]


def _spot(error: ErrorDetails, content: Any, schema: Schema) -> Spot:
    return spot_of(error["loc"][:-1] if error["type"] in KEYS else error["loc"], content, schema)


def _is_inside(spot: Spot, other: Spot) -> bool:
    """Of a value that may be of two types, what is wrong inside says more than that it is not of the other one."""
    return len(spot.path) > len(other.path) and spot.path[: len(other.path)] == other.path


def _place(error: ErrorDetails, spot: Spot) -> str:
    """In words; of a wrong choice between kinds the key that chooses, unless it may be written as a bare name."""
    chooses = error["ctx"]["discriminator"][1:-1] if error["type"] == "union_tag_invalid" else "name"
    return spot.place if chooses == "name" else f"{spot.place}.{chooses}"


def _message(error: ErrorDetails, spot: Spot) -> str:
    kind, found, context = error["type"], error["input"], error.get("ctx", {})
    if kind in UNKNOWN:
        return _unknown(str(error["loc"][-1]), found, spot)
    if kind == "missing":
        name = error["loc"][-1]
        return f"{found!r} is too short" if isinstance(name, int) else f"'{name}' is missing"
    if kind == "union_tag_not_found":
        return f"{context['discriminator']} is missing"
    if kind == "union_tag_invalid":
        tags = [tag[1:-1] for tag in context["expected_tags"].split(", ")]
        return f"'{context['tag']}' is not one of {tags}{_closest(context['tag'], tags)}"
    if kind == "int_parsing":
        return f"found the key '{found}', expected a whole number"
    if kind in LIMITS:
        limit, words = LIMITS[kind]
        return f"{found!r} is {words} {context[limit]:g}"
    return _other(kind, found, context, error["msg"])


def _other(kind: str, found: Any, context: Mapping[str, Any], words: str) -> str:
    if kind == "literal_error":
        known = re.findall("'(.*?)'", context["expected"])
        return f"{found!r} is not one of {context['expected']}{_closest(str(found), known)}"
    if kind.endswith("_type"):
        return f"{found!r} is not of type '{TYPES.get(kind.removesuffix('_type'), 'object')}'"
    if kind == "too_short":  # also said of lists with wrong items
        return f"{found!r} is too short" if len(found) < context["min_length"] else ""
    if kind == "too_long":
        return f"{found!r} is too long"
    return f"{found!r}: {words.removeprefix('Value error, ')}"


def _unknown(name: str, value: Any, spot: Spot) -> str:
    if spot.path[:-1] == ("evaluations",) and name in FORMER:
        return f"unknown key '{name}': write `{FORMER[name]}` (found {value!r})"
    if not spot.choice:
        return f"unknown key '{name}'. {suggest(name, spot.known)}"
    keys = [key for key in spot.known if key not in ("name", "method", "source")]
    return f"unknown key '{name}' of {spot.choice} (it takes {', '.join(keys) or 'none'}){_closest(name, keys)}"


def _closest(name: str, known: Sequence[str]) -> str:
    hint = suggest(name, known)
    return f". {hint}" if hint.startswith("Did you mean") else ""
