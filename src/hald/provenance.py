"""Keys: what a piece of work is, in ten hex digits. Same parameters, same inputs, same code: same key.

The code part of a key is a digest of the parsed source of every module that the stage's entry module imports, directly
or not. Docstrings, comments, layout and messages do not count, so editing words never retrains a teacher.
"""

import ast
import functools
import hashlib
import importlib.metadata
import json
from pathlib import Path
from typing import Any

from hald.errors import UserError
from hald.specs.base import to_dict

SOURCE = Path(__file__).parent

# The modules that a stage starts from. `hald.device` sets threads and numerical flags for everything on a device.
ENTRY = {
    "dataset.sklearn_digits": ("hald.data.prepare", "hald.data.sources.digits"),
    "dataset.torchvision": ("hald.data.prepare", "hald.data.sources.cifar"),
    "dataset.imagefolder": ("hald.data.prepare", "hald.data.sources.imagefolder"),
    "dataset.tiny_imagenet": ("hald.data.prepare", "hald.data.sources.tiny_imagenet"),
    "dataset.parquet": ("hald.data.prepare", "hald.data.sources.parquet"),
    "squeeze": ("hald.squeeze", "hald.device"),
    "ranking": ("hald.synthesis.ranking", "hald.device"),
    "statistics": ("hald.synthesis.statistics", "hald.device"),
    "recover.sre2l": ("hald.synthesis.sre2l", "hald.device"),
    "recover.lpld": ("hald.synthesis.lpld", "hald.device"),
    "recover.fadrm": ("hald.synthesis.fadrm", "hald.device"),
    "synthesis.sre2l": ("hald.synthesis.collect", "hald.device"),
    "synthesis.lpld": ("hald.synthesis.collect", "hald.device"),
    "synthesis.fadrm": ("hald.synthesis.collect", "hald.device"),
    "synthesis.rded": ("hald.synthesis.rded", "hald.device"),
    "synthesis.patches": ("hald.synthesis.patches", "hald.device"),
    "synthesis.real": ("hald.synthesis.real", "hald.device"),
    "synthesis.external": ("hald.synthesis.external", "hald.device"),
    "relabel": ("hald.labels.relabel", "hald.device"),
    "evaluate": ("hald.train.run", "hald.device"),
    "analysis": ("hald.analysis.run", "hald.device"),
    "tables": ("hald.tables",),
    "figures": ("hald.figures",),
}

# Calls whose positional arguments are words for people.
WORDY = frozenset({"UserError", "option", "log.info", "log.warning", "log.error", "Progress"})

# These cannot change a number: they move files, word messages and log, keep jobs apart, choose among equal devices.
NUMBERLESS = frozenset(
    {
        "hald.claim",
        "hald.errors",
        "hald.files",
        "hald.jobs",
        "hald.lease",
        "hald.progress",
        "hald.provenance",
        "hald.scratch",
        "hald.slurm",
        "hald.synthesis.preview",
    }
)


def canonical(data: Any) -> str:
    """JSON with sorted keys and no white space: one text per value."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def key_of(stage: str, spec: Any, code: str) -> str:
    """The key of a spec: ten hex digits over stage, parameters (with the keys of its inputs) and code digest."""
    identity = {name: value for name, value in to_dict(spec).items() if name not in getattr(spec, "NOT_IDENTITY", ())}
    return hashlib.sha256(canonical([stage, identity, code]).encode()).hexdigest()[:10]


def read_sources(folder: Path = SOURCE) -> dict[str, str]:
    """Source text of every module of the package, by name."""
    sources = {}
    for path in sorted(folder.rglob("*.py")):
        parts = ("hald", *path.relative_to(folder).with_suffix("").parts)
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return sources


def code_digests(sources: dict[str, str] | None = None) -> dict[str, str]:
    """Digest of the code behind each stage (of this package, or of given sources)."""
    sources = read_sources() if sources is None else sources
    digests = {}
    for stage, entries in ENTRY.items():
        code = {name: _parsed(sources[name])[0] for name in closure(entries, sources)}
        digests[stage] = hashlib.sha256(canonical(code).encode()).hexdigest()
    return digests


def closure(entries: tuple[str, ...], sources: dict[str, str]) -> frozenset[str]:
    """The modules of this package that `entries` import, directly or not, themselves included."""
    seen: set[str] = set()
    waiting = set(entries)
    while waiting:
        module = waiting.pop()
        if module in sources and module not in NUMBERLESS:
            seen.add(module)
            waiting |= _parsed(sources[module])[1] - seen
    return frozenset(seen)


@functools.cache
def _parsed(source: str) -> tuple[str, frozenset[str]]:
    """A module without words and layout, and the modules that importing it runs (parents included)."""
    tree = ast.parse(source)
    wanted: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            _strip_docstring(node)
        elif isinstance(node, ast.Import):
            wanted |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, "imports inside the package are absolute"  # noqa: PT018
            wanted |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in WORDY:
            node.args = []
    with_parents = {".".join(module.split(".")[:n]) for module in wanted for n in range(1, module.count(".") + 2)}
    # unparse, not dump: its text is the same on every Python version
    return ast.unparse(tree), frozenset(with_parents)


def _strip_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    if ast.get_docstring(node, clean=False) is not None:
        node.body = node.body[1:] or ([] if isinstance(node, ast.Module) else [ast.Pass()])


def versions(*packages: str) -> dict[str, str]:
    """Installed versions, for records."""
    return {name: importlib.metadata.version(name) for name in packages}


def class_digest(classes: list[str]) -> str:
    """Four hex digits that name a class order in messages; artefacts store and compare the whole list."""
    return hashlib.sha256(canonical(classes).encode()).hexdigest()[:4]


def require_same_classes(a: list[str], a_name: str, b: list[str], b_name: str, remedy: str) -> None:
    """Refuse two artefacts whose classes differ in number, name or order: labels would silently be wrong."""
    if a == b:
        return
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    raise UserError(
        f"{a_name} has class order {class_digest(a)} ({len(a)} classes{_at(a, at)}), "
        f"{b_name} has {class_digest(b)} ({len(b)} classes{_at(b, at)}): they do not belong together. {remedy}"
    )


def require_same_data(a: str, a_name: str, b: str, b_name: str) -> None:
    """Refuse artefacts that come from different real data (digests of prepared datasets; empty: not known)."""
    if a and b and a != b:
        raise UserError(
            f"{a_name} comes from other real images (digest {a[:8]}) than {b_name} ({b[:8]}), although the dataset has "
            f"the same name; give one of the two datasets another name in the config, or remove what is old"
        )


def _at(classes: list[str], i: int) -> str:
    return f", number {i} is '{classes[i]}'" if i < len(classes) else ""
