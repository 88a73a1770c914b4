"""Reading and checking the config: YAML files -> validated settings, or one message that says what to change."""

import json
import math
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from hald.config.document import json_schema
from hald.config.messages import explain, spot_of
from hald.config.settings import Config, Experiment
from hald.errors import UserError, suggest
from hald.settings import Section, named

S = TypeVar("S", bound=Section)

BY_NAME = ("order", "loss")  # a bare name, or a mapping with that name
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
    if isinstance(raw.get("datasets") or {}, dict):
        raw["datasets"] = merge(read_yaml(folder / "datasets.yaml"), raw.get("datasets") or {})
    config = _validated(Config, raw, "config/config.yaml (or --config)")
    experiments = {}
    standard = read_yaml(folder / "evaluations.yaml")
    for name, own in _experiment_files(config.experiments, root).items():
        content = merge(merge({"evaluations": standard}, own), config.override.get(name) or {})
        _apply_presets(content, folder / "presets.yaml", f"experiment '{name}'")
        experiments[name] = _validated(Experiment, content, str(experiment_file(name, root)))
    unused = sorted(config.override.keys() - experiments.keys())
    if unused:
        raise UserError(f"override names '{unused[0]}', which is not among experiments: {list(config.experiments)}")
    return config, experiments


def _apply_presets(content: dict[str, Any], path: Path, where: str) -> None:
    """Lay every image set that names a `preset` over that preset, in place."""
    images = content.get("images")
    if not isinstance(images, dict):
        return  # validation will say so
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
    """`base` with the keys of `change` laid over it, mapping by mapping; an order or loss of another name replaces."""
    merged = dict(base)
    for name, value in change.items():
        old = merged.get(name)
        if name in BY_NAME and isinstance(value, dict):
            old = named(old)
            if isinstance(old, dict) and value.get("name", old.get("name")) != old.get("name"):
                old = None
        merged[name] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def expand(path: str) -> str:
    """`path` with environment variables and ~ replaced."""
    return os.path.expanduser(os.path.expandvars(path))


def _validated(kind: type[S], content: dict[str, Any], where: str) -> S:
    """Settings from plain values, or one message for each of the first five that are wrong.

    Text where a number or truth value is wanted is read as one: Snakemake's --config leaves what stands inside lists
    and mappings as text. Validated is JSON, in which a tuple is a list.
    """
    _require_finite(content, where)
    try:
        return kind.model_validate_json(json.dumps(content, default=str))
    except ValidationError as error:
        if not _read_texts(content, error.errors(include_url=False), _schema(kind)):
            raise UserError(_said(kind, content, error, where)) from None
    try:
        return kind.model_validate_json(json.dumps(content, default=str))
    except ValidationError as error:
        raise UserError(_said(kind, content, error, where)) from None


def _schema(kind: type[Section]) -> dict[str, Any]:
    whole = json_schema()
    return whole if kind is Config else {"$ref": f"#/$defs/{kind.__name__}", "$defs": whole["$defs"]}


def _said(kind: type[Section], content: dict[str, Any], error: ValidationError, where: str) -> str:
    messages = explain(error.errors(include_url=False), content, _schema(kind))
    return "\n".join(f"{where}: {message}" for message in messages[:5])


def _read_texts(content: dict[str, Any], errors: Sequence[ErrorDetails], schema: dict[str, Any]) -> bool:
    """Read texts of a wrong type as YAML, in place; whether there are any."""
    texts = [error for error in errors if error["type"].endswith("_type") and isinstance(error["input"], str)]
    for error in texts:
        _set(content, spot_of(error["loc"], content, schema).path, yaml.load(error["input"], Loader=_Loader))
    return bool(texts)


def _require_finite(content: Any, where: str, place: str = "") -> None:
    if isinstance(content, float) and not math.isfinite(content):
        raise UserError(f"{where}: {place}: found {content}, which is not a finite number")
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, value in items:
        _require_finite(value, where, f"{place}.{name}" if place else str(name))


def _set(content: Any, path: Sequence[str | int], value: Any) -> None:
    for part in path[:-1]:
        content = content[part]
    content[path[-1]] = value
