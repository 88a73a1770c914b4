"""Reading and checking the config: YAML files -> validated settings, or one message that says what to change."""

import difflib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from hald.errors import UserError
from hald.plan.schema import json_schema
from hald.plan.settings import Config, Experiment
from hald.specs.base import from_dict


class _Loader(yaml.SafeLoader):
    """YAML 1.2 floats: `1e-3` is a number, not a string."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)$"),
    list("-+.0123456789"),
)


def load_config(raw: dict[str, Any] | None = None, root: Path = Path()) -> tuple[Config, dict[str, Experiment]]:
    """The settings of a run: `raw` (or config/config.yaml below `root`) with the datasets and experiments it names."""
    folder = root / "config"
    raw = read_yaml(folder / "config.yaml") if raw is None else _typed(_plain(raw))
    schema = json_schema()
    raw["datasets"] = merge(read_yaml(folder / "datasets.yaml"), raw.get("datasets") or {})
    _validate(raw, schema, "config/config.yaml (or --config)")
    config = from_dict(Config, raw)
    experiments = {}
    for name in config.experiments:
        path = folder / "experiments" / f"{name}.yaml"
        if not path.is_file():
            known = sorted(file.stem for file in path.parent.glob("*.yaml"))
            raise UserError(f"there is no experiment '{name}': {path} does not exist. {suggest(name, known)}")
        content = merge(read_yaml(path), config.override.get(name) or {})
        _validate(content, {"$ref": "#/$defs/Experiment", "$defs": schema["$defs"]}, str(path))
        experiments[name] = from_dict(Experiment, content)
    unused = sorted(config.override.keys() - experiments.keys())
    if unused:
        raise UserError(f"override names '{unused[0]}', which is not among experiments: {list(config.experiments)}")
    return config, experiments


def read_yaml(path: Path) -> dict[str, Any]:
    """One YAML mapping with string keys."""
    if not path.is_file():
        raise UserError(f"{path} does not exist; run from the project's root folder")
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # a SafeLoader
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold a mapping of keys to values, found {type(content).__name__}")
    return dict(_plain(content))


def _plain(value: Any) -> Any:
    """Ordinary dictionaries with string keys, as JSON has them."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _typed(value: Any) -> Any:
    """Numbers and truth values that Snakemake's --config leaves as text inside lists and mappings."""
    if isinstance(value, dict):
        return {name: _typed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_typed(item) for item in value]
    if not isinstance(value, str) or not value:
        return value
    scalar = yaml.load(value, Loader=_Loader) if _SCALAR.fullmatch(value) else value
    return value if isinstance(scalar, dict | list) else scalar


_SCALAR = re.compile(r"[-+.\w]+")


def merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """`base` with the keys of `change` laid over it, mapping by mapping."""
    merged = dict(base)
    for name, value in change.items():
        old = merged.get(name)
        merged[name] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def expand(path: str | None) -> str | None:
    """`path` with environment variables and ~ replaced."""
    return None if path is None else os.path.expanduser(os.path.expandvars(path))


def suggest(name: str, known: Iterable[str]) -> str:
    """`Did you mean ...?`, or the list of what there is."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(known) or 'none'}."


def _validate(content: dict[str, Any], schema: dict[str, Any], where: str) -> None:
    errors = sorted(
        jsonschema.Draft202012Validator(schema).iter_errors(content), key=lambda e: [str(p) for p in e.path]
    )
    if errors:
        raise UserError("\n".join(f"{where}: {_explain(error)}" for error in errors[:5]))


def _explain(error: jsonschema.ValidationError) -> str:
    place = ".".join(str(part) for part in error.absolute_path) or "top level"
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = list(error.schema["properties"])
        unknown = next(name for name in error.instance if name not in known)
        return f"{place}: unknown key '{unknown}'. {suggest(unknown, known)}"
    if error.validator == "required":
        return f"{place}: {error.message.replace(' is a required property', ' is missing')}"
    if error.validator == "anyOf":
        best = jsonschema.exceptions.best_match([error])
        return f"{place}: found {error.instance!r}; {best.message if best else error.message}"
    meaning = error.schema.get("description", "")
    return f"{place}: {error.message}" + (f" ({meaning})" if meaning else "")
