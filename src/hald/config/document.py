"""Settings -> JSON schema and the key-by-key document."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import models_json_schema

from hald.config.settings import Config, Experiment


def json_schema() -> dict[str, Any]:
    """The schema of config.yaml, with the schema of an experiment file under `$defs/Experiment`."""
    _, schema = models_json_schema([(Config, "validation"), (Experiment, "validation")], ref_template=REF + "{model}")
    definitions = {_short_name(name): _tidy(definition) for name, definition in schema["$defs"].items()}
    for definition in definitions.values():
        definition["description"] = definition["description"].splitlines()[0]
        definition.setdefault("required", [])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "config/config.yaml (experiment files: #/$defs/Experiment)",
        "description": "Generated from the settings in src/hald by `make docs`.",
        **{name: value for name, value in definitions.pop("Config").items() if name != "description"},
        "$defs": definitions,
    }


REF = "#/$defs/"


def _short_name(name: str) -> str:
    """`Settings` of a plug-in by the plug-in's name."""
    plugin = re.fullmatch(r"hald__synthesis__methods__(\w+)__settings__Settings", name)
    return f"images-{plugin.group(1)}" if plugin else name


def _tidy(node: Any) -> Any:
    """Without generated titles, lists of equal items in short, a bare name beside a mapping with that name."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return REF + _short_name(node.removeprefix(REF)) if isinstance(node, str) and node.startswith(REF) else node
    tidy = {name: _tidy(value) for name, value in node.items() if name != "title" or isinstance(value, dict)}
    if "prefixItems" in tidy:
        tidy["items"] = tidy.pop("prefixItems")[0]
    if tidy.get("discriminator", {}).get("propertyName") == "name":
        mapping = {name: tidy.pop(name) for name in ("oneOf", "discriminator")}
        tidy["anyOf"] = [{"enum": list(mapping["discriminator"]["mapping"])}, mapping]
    return tidy


def alternatives(schema: Mapping[str, Any], node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a value may be: a node with its references followed and its unions taken apart."""
    if "$ref" in node:
        return alternatives(schema, schema["$defs"][node["$ref"].removeprefix(REF)])
    if "anyOf" in node:
        return [one for part in node["anyOf"] for one in alternatives(schema, part)]
    return [node]


def variants(node: Mapping[str, Any]) -> dict[str, str]:
    """Of a union that one key decides: a reference for each value of that key."""
    found: dict[str, str] = node.get("discriminator", {}).get("mapping", {})
    return found


def document() -> str:
    """config/README.md: every key with type, default and meaning."""
    schema = json_schema()
    sections = [("config/config.yaml", schema), ("config/experiments/*.yaml", schema["$defs"]["Experiment"])]
    sections += sorted(item for item in schema["$defs"].items() if item[0] != "Experiment")
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
    if isinstance(value, dict) and value:
        return str(value.get("name", "its own defaults"))
    return str(value)


def _words(prop: dict[str, Any]) -> str:
    if variants(prop):
        return " or ".join(dict.fromkeys(_words({"$ref": ref}) for ref in variants(prop).values()))
    if "const" in prop:
        return f"`{prop['const']}`"
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
        more = prop["additionalProperties"]
        inner = _words(more) if isinstance(more, dict) else "anything"
        return f"map of names to {inner}"
    return str(prop.get("type", "anything"))
