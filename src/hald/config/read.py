"""Reading and checking the config: YAML files -> validated settings, or one message that says what to change."""

import difflib
import math
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from hald.config.document import json_schema
from hald.config.settings import Config, Experiment
from hald.errors import UserError
from hald.plain import from_dict

OUTCOMES = ("tables", "analyses", "figures", "includes")  # what an experiment does not hand on to those that extend it


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML 1.2 floats: `1e-3` is a number, not a string."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)$"),
    list("-+.0123456789"),
)


def load_config(raw: dict[str, Any] | None = None, root: Path = Path()) -> tuple[Config, dict[str, Experiment]]:
    """The settings of a run: `raw` (or config/config.yaml below `root`) with the datasets and experiments it names."""
    folder = root / "config"
    raw = read_yaml(folder / "config.yaml") if raw is None else _plain(raw)
    schema = json_schema()
    if isinstance(raw.get("datasets") or {}, dict):
        raw["datasets"] = merge(read_yaml(folder / "datasets.yaml"), raw.get("datasets") or {})
    _validate(raw, schema, "config/config.yaml (or --config)")
    config = from_dict(Config, raw)
    experiments = {}
    standard = read_yaml(folder / "evaluations.yaml")
    for name, own in _experiment_files(config.experiments, root).items():
        content = merge(merge({"evaluations": standard}, own), config.override.get(name) or {})
        _apply_presets(content, folder / "presets.yaml", f"experiment '{name}'")
        _validate(content, {"$ref": "#/$defs/Experiment", "$defs": schema["$defs"]}, str(experiment_file(name, root)))
        experiments[name] = from_dict(Experiment, content)
    unused = sorted(config.override.keys() - experiments.keys())
    if unused:
        raise UserError(f"override names '{unused[0]}', which is not among experiments: {list(config.experiments)}")
    return config, experiments


def _apply_presets(content: dict[str, Any], path: Path, where: str) -> None:
    """Lay every image set that names a `preset` over that preset, in place."""
    images = content.get("images")
    if not isinstance(images, dict):
        return  # the schema will say so
    for name, entry in images.items():
        if not isinstance(entry, dict) or not isinstance(entry.get("preset"), str):
            continue
        known = read_yaml(path)
        if entry["preset"] not in known:
            raise UserError(
                f"{where}: image set '{name}': there is no preset '{entry['preset']}' in {path}. "
                f"{suggest(entry['preset'], known)}"
            )
        images[name] = merge(known[entry["preset"]], entry)


def experiment_file(name: str, root: Path = Path()) -> Path:
    """File of an experiment: a name with a slash is its path from `root`, without the suffix."""
    return root / (f"{name}.yaml" if "/" in name else f"config/experiments/{name}.yaml")


def experiment_names(root: Path = Path()) -> list[str]:
    """All experiments of the project: those of config/experiments, then those of the studies."""
    studies = sorted(root.glob("studies/*/experiments/*.yaml"))
    names = [path.relative_to(root).with_suffix("").as_posix() for path in studies]
    return sorted(path.stem for path in (root / "config/experiments").glob("*.yaml")) + names


def _experiment_files(names: Iterable[str], root: Path) -> dict[str, dict[str, Any]]:
    """Content of experiments by name; one that only `includes` others stands for them."""
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        path = experiment_file(name, root)
        content = _experiment(name, root)
        if "includes" not in content:
            found[name] = content
            continue
        if len(content) > 1 or not isinstance(content["includes"], list) or name in content["includes"]:
            raise UserError(f"{path}: an experiment that includes others holds the list `includes` and nothing else")
        found |= _experiment_files(content["includes"], root)
    return found


def _experiment(name: str, root: Path, extended_by: tuple[str, ...] = ()) -> dict[str, Any]:
    """Content of one experiment's file, laid over what it `extends`: another experiment without its outcomes."""
    path = experiment_file(name, root)
    if not path.is_file():
        asked = f" (experiment '{extended_by[-1]}' extends it)" if extended_by else ""
        raise UserError(
            f"there is no experiment '{name}'{asked}: {path} does not exist. {suggest(name, experiment_names(root))}"
        )
    content = read_yaml(path)
    base = content.pop("extends", None)
    if base is None:
        return content
    chain = (*extended_by, name)
    if not isinstance(base, str):
        raise UserError(f"{path}: `extends` names one other experiment, found {base!r}")
    if base in chain:
        raise UserError(f"{path}: experiments extend each other in a circle: {' -> '.join((*chain, base))}")
    inherited = _experiment(base, root, chain)
    if "includes" in inherited:
        raise UserError(
            f"{path}: '{base}' only includes other experiments; `extends` needs one with settings of its own"
        )
    return merge({key: value for key, value in inherited.items() if key not in OUTCOMES}, content)


def config_from(pairs: list[str]) -> dict[str, Any]:
    """config/config.yaml with KEY=VALUE changes laid over it, as Snakemake's --config does."""
    raw = read_yaml(Path("config/config.yaml"))
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise UserError(f"--config takes KEY=VALUE, found '{pair}'; e.g. --config 'experiments=[demo]'")
        try:
            raw = merge(raw, {name: yaml.load(value, Loader=_Loader)})
        except yaml.YAMLError as error:
            raise UserError(f"--config {name}: '{value}' is not valid YAML ({error})") from error
    return raw


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


def merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """`base` with the keys of `change` laid over it, mapping by mapping."""
    merged = dict(base)
    for name, value in change.items():
        old = merged.get(name)
        merged[name] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def expand(path: str) -> str:
    """`path` with environment variables and ~ replaced."""
    return os.path.expanduser(os.path.expandvars(path))


def suggest(name: str, known: Iterable[str]) -> str:
    """`Did you mean ...?`, or the list of what there is."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(known) or 'none'}."


def _validate(content: dict[str, Any], schema: dict[str, Any], where: str) -> None:
    """Check against the schema.

    Text where a number or truth value is wanted is read as one: Snakemake's --config leaves what stands inside lists
    and mappings as text.
    """
    validator = jsonschema.Draft202012Validator(schema)
    for leaf in [leaf for error in validator.iter_errors(content) for leaf in _leaves(error)]:
        if isinstance(leaf.instance, str) and leaf.validator == "type":
            _set(content, list(leaf.absolute_path), yaml.load(leaf.instance, Loader=_Loader))
    _require_finite(content, where)
    errors = sorted(validator.iter_errors(content), key=lambda error: [str(part) for part in error.path])
    if errors:
        raise UserError("\n".join(f"{where}: {_explain(error)}" for error in errors[:5]))


def _require_finite(content: Any, where: str, place: str = "") -> None:
    if isinstance(content, float) and not math.isfinite(content):
        raise UserError(f"{where}: {place}: found {content}, which is not a finite number")
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, value in items:
        _require_finite(value, where, f"{place}.{name}" if place else str(name))


def _leaves(error: jsonschema.ValidationError) -> Iterator[jsonschema.ValidationError]:
    """An error, and those of the alternatives behind it."""
    yield error
    for cause in error.context or ():
        yield from _leaves(cause)


def _set(content: Any, path: list[str | int], value: Any) -> None:
    for part in path[:-1]:
        content = content[part]
    content[path[-1]] = value


def _explain(error: jsonschema.ValidationError) -> str:
    place = ".".join(str(part) for part in error.absolute_path) or "top level"
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = list(error.schema["properties"])
        unknown = next(name for name in error.instance if name not in known)
        return f"{place}: unknown key '{unknown}'. {suggest(unknown, known)}"
    if error.validator == "pattern":
        return f"{place}: found the key '{error.instance}', expected a whole number"
    if error.validator == "required":
        return f"{place}: {error.message.replace(' is a required property', ' is missing')}"
    if error.validator == "anyOf":
        real = [cause for cause in error.context or () if cause.schema.get("type") != "null"]  # an option may be empty
        return f"{place}: {'; '.join(dict.fromkeys(cause.message for cause in real))}"
    meaning = error.schema.get("description", "")
    return f"{place}: {error.message}" + (f" ({meaning})" if meaning else "")
