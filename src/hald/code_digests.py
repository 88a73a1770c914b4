"""What made a number: a digest of the code behind each stage, and the versions of libraries.

The digest covers the parsed source of every module that the stage's entry modules import, directly or not. Docstrings,
comments, layout and messages do not count. hald.plan.ledger knows which digests compute the same numbers.
"""

import ast
import functools
import hashlib
import importlib.metadata
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from hald.keys import canonical

SOURCE = Path(__file__).parent

# The modules that a stage starts from. `hald.numerics.device` sets threads and numerical flags.
ENTRY = {
    "dataset.sklearn_digits": ("hald.datasets.prepare", "hald.datasets.sources.sklearn_digits"),
    "dataset.torchvision": ("hald.datasets.prepare", "hald.datasets.sources.torchvision"),
    "dataset.imagefolder": ("hald.datasets.prepare", "hald.datasets.sources.imagefolder"),
    "dataset.tiny_imagenet": ("hald.datasets.prepare", "hald.datasets.sources.tiny_imagenet"),
    "dataset.parquet": ("hald.datasets.prepare", "hald.datasets.sources.parquet"),
    "squeeze": ("hald.squeeze.train", "hald.numerics.device"),
    "ranking": ("hald.synthesis.ranking", "hald.numerics.device"),
    "statistics": ("hald.synthesis.class_statistics", "hald.numerics.device"),
    "recover.sre2l": ("hald.synthesis.methods.sre2l.compute", "hald.numerics.device"),
    "recover.lpld": ("hald.synthesis.methods.lpld.compute", "hald.numerics.device"),
    "recover.fadrm": ("hald.synthesis.methods.fadrm.compute", "hald.numerics.device"),
    "synthesis.sre2l": ("hald.synthesis.from_units", "hald.numerics.device"),
    "synthesis.lpld": ("hald.synthesis.from_units", "hald.numerics.device"),
    "synthesis.fadrm": ("hald.synthesis.from_units", "hald.numerics.device"),
    "synthesis.rded": ("hald.synthesis.methods.rded.compute", "hald.numerics.device"),
    "synthesis.patches": ("hald.synthesis.methods.patches.compute", "hald.numerics.device"),
    "synthesis.real": ("hald.synthesis.methods.real.compute", "hald.numerics.device"),
    "synthesis.external": ("hald.synthesis.methods.external.compute", "hald.numerics.device"),
    "relabel": ("hald.labels.relabel", "hald.numerics.device"),
    "evaluate": ("hald.evaluation.train", "hald.numerics.device"),
    "analysis": ("hald.analysis.run", "hald.numerics.device"),
    "tables": ("hald.report.render",),
    "figures": ("hald.report.figure",),
}

# Calls whose positional arguments are words for people.
WORDY = frozenset({"UserError", "option", "log.info", "log.warning", "log.error", "Progress"})

# Code that cannot change a number decides what to do, keeps jobs apart, moves files, writes messages: all modules at
# the top of the package, and these folders.
NUMBERLESS = frozenset({"cli", "cluster", "config", "jobs", "plan", "progress"})


def is_numberless(module: str) -> bool:
    """Whether a module of this package cannot change a result."""
    folders = module.split(".")[1:-1]
    return not folders or folders[0] in NUMBERLESS or module == "hald.synthesis.preview"


def read_sources(folder: Path = SOURCE) -> dict[str, str]:
    """Source text of every module of the package, by name."""
    sources = {}
    for path in sorted(folder.rglob("*.py")):
        parts = ("hald", *path.relative_to(folder).with_suffix("").parts)
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return sources


def code_digests(sources: Mapping[str, str] | None = None) -> dict[str, str]:
    """Digest of the code behind each stage (of this package, or of given sources)."""
    sources = read_sources() if sources is None else sources
    digests = {}
    for stage, entries in ENTRY.items():
        code = {name: _parsed(sources[name])[0] for name in closure(entries, sources)}
        digests[stage] = hashlib.sha256(canonical(code).encode()).hexdigest()
    return digests


def closure(entries: Iterable[str], sources: Mapping[str, str]) -> frozenset[str]:
    """The modules of this package that `entries` import, directly or not, themselves included."""
    seen: set[str] = set()
    waiting = set(entries)
    while waiting:
        module = waiting.pop()
        if module in sources and not is_numberless(module):
            seen.add(module)
            waiting |= _parsed(sources[module])[1] - seen
    return frozenset(seen)


@functools.cache
def _parsed(source: str) -> tuple[str, frozenset[str]]:
    """A module without words and layout, and the modules that importing it runs (parents included)."""
    tree = without_words(source)
    wanted: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            wanted |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, "imports inside the package are absolute"  # noqa: PT018
            wanted |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    with_parents = {".".join(module.split(".")[:n]) for module in wanted for n in range(1, module.count(".") + 2)}
    # unparse, not dump: its text is the same on every Python version
    return ast.unparse(tree), frozenset(with_parents)


def without_words(source: str) -> ast.Module:
    """A parsed module without docstrings, comments and messages."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            _strip_docstring(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in WORDY:
            node.args = []
    return tree


def _strip_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    if ast.get_docstring(node, clean=False) is not None:
        nothing: list[ast.stmt] = [] if isinstance(node, ast.Module) else [ast.copy_location(ast.Pass(), node.body[0])]
        node.body = node.body[1:] or nothing


def versions(*packages: str) -> dict[str, str]:
    """Installed versions, for records."""
    return {name: importlib.metadata.version(name) for name in packages}


if __name__ == "__main__":  # `hald bless` asks earlier commits for their digests, and for the modules behind them
    known = read_sources()
    behind = {stage: sorted(closure(entries, known)) for stage, entries in ENTRY.items()}
    print(json.dumps({"digests": code_digests(known), "modules": behind}))
