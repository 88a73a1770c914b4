"""Settings dataclasses -> JSON schema and the key-by-key document."""

import dataclasses
import types
import typing
from typing import Any, Literal, Union

from hald.config.settings import Config, Experiment
from hald.plain import to_dict

PRIMITIVE = {int: "integer", float: "number", str: "string", bool: "boolean"}


def json_schema() -> dict[str, Any]:
    """The schema of config.yaml, with the schema of an experiment file under `$defs/Experiment`."""
    definitions: dict[str, Any] = {}
    root = _object(Config, definitions)
    _object(Experiment, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "config/config.yaml (experiment files: #/$defs/Experiment)",
        "description": "Generated from src/hald/config/settings.py by `make docs`.",
        **definitions.pop(root["$ref"].rsplit("/", 1)[1]),
        "$defs": definitions,
    }


def _object(cls: type, definitions: dict[str, Any]) -> dict[str, Any]:
    """Reference to the definition of a dataclass, made on first use."""
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = {}
        hints = typing.get_type_hints(cls)
        fields = dataclasses.fields(cls)
        definitions[cls.__name__] = {
            "type": "object",
            "description": (cls.__doc__ or "").strip().splitlines()[0],
            "additionalProperties": False,
            "required": [field.name for field in fields if _is_required(field)],
            "properties": {field.name: _property(field, hints[field.name], definitions) for field in fields},
        }
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def default_of(field: "dataclasses.Field[Any]") -> Any:
    """Plain JSON default of a field."""
    factory: Any = field.default_factory
    value = field.default if factory is dataclasses.MISSING else factory()
    if dataclasses.is_dataclass(value):
        return to_dict(value)
    return list(value) if isinstance(value, tuple) else value


def _property(field: "dataclasses.Field[Any]", hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    limits = field.metadata["limits"]
    schema = _type(hint, limits, definitions) | {"description": field.metadata["meaning"]}
    if not _is_required(field):
        schema["default"] = default_of(field)
    return schema


def _type(hint: Any, limits: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_type(arg, limits, definitions) for arg in args]}
    if hint is type(None):
        return {"type": "null"}
    if origin is Literal:
        return {"enum": list(args)}
    if dataclasses.is_dataclass(hint):
        return _object(typing.cast(type, hint), definitions)
    if origin is dict:
        names = {"propertyNames": {"pattern": r"^\d+$"}} if args[0] is int else {}
        return {"type": "object", "additionalProperties": _type(args[1], limits, definitions)} | names
    if origin is tuple:
        return _array(args, limits, definitions)
    if hint in PRIMITIVE:
        number = {name: value for name, value in limits.items() if not name.endswith("Items")}
        return {"type": PRIMITIVE[hint]} | (number if hint in (int, float) else {})
    return {}


def _array(args: tuple[Any, ...], limits: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    lengths = {name: value for name, value in limits.items() if name.endswith("Items")}
    if args[-1] is not Ellipsis:
        lengths = {"minItems": len(args), "maxItems": len(args)}
    return {"type": "array", "items": _type(args[0], limits, definitions)} | lengths


def document() -> str:
    """config/README.md: every key with type, default and meaning."""
    schema = json_schema()
    sections = [("config/config.yaml", schema), ("config/experiments/*.yaml", schema["$defs"]["Experiment"])]
    sections += [(name, schema["$defs"][name]) for name in schema["$defs"] if name != "Experiment"]
    parts = [HEAD]
    for title, definition in sections:
        rows = [_row(name, prop, definition) for name, prop in definition["properties"].items()]
        parts.append(
            f"## {title}\n\n{definition['description']}\n\n| key | value | default | meaning |\n|---|---|---|---|\n"
        )
        parts[-1] += "\n".join(rows) + "\n"
    return "\n".join(parts)


HEAD = """# Configuration

`config.yaml` names the experiments and the places; each file of `experiments/` is one experiment, and a name with a
slash is the path of one elsewhere (`studies/cpu/experiments/base`); `datasets.yaml` holds the known datasets. Unknown
keys are refused. `hald plan` prints what a configuration amounts to without doing it.

    snakemake --cores all --config 'experiments=[demo]'                            # another experiment
    snakemake --cores all --config 'override={demo: {evaluations: {hald: {hard_epochs: 30}}}}'   # one setting, tried
    snakemake --cores all --config stores=/shared/hald/labels                      # label stores shared with others

Beside the keys below, an experiment's file may say `extends: another`: it then has everything of the other one but its
tables, analyses and figures, and changes what it says itself (mappings key by key). A file that holds nothing but
`includes: [a, b]` stands for those experiments together.

This page and `workflow/schemas/config.schema.yaml` are generated from the settings in `src/hald` by `make docs`; a test
compares them.
"""


def _row(name: str, prop: dict[str, Any], definition: dict[str, Any]) -> str:
    default = "required" if name in definition["required"] else f"`{_short(prop['default'])}`"
    return f"| `{name}` | {_words(prop)} | {default} | {prop['description']} |"


def _short(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return "[" + ", ".join(_short(item) for item in value) + "]"
    return "its own defaults" if isinstance(value, dict) and value else str(value)


def _words(prop: dict[str, Any]) -> str:
    if "anyOf" in prop:
        return " or ".join(_words(option) for option in prop["anyOf"] if option.get("type") != "null")
    if "enum" in prop:
        return ", ".join(f"`{value}`" for value in prop["enum"])
    if "$ref" in prop:
        name = prop["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if prop.get("type") == "array":
        length = f"{prop['minItems']} x " if prop.get("minItems") == prop.get("maxItems", 0) else ""
        return f"list of {length}{_words(prop['items'])}"
    if prop.get("type") == "object":
        inner = _words(prop["additionalProperties"])
        return f"map of names to {inner}"
    return str(prop.get("type", "anything"))
