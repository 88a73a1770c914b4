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

# The modules that a stage starts from. `hald.device` sets threads and numerical flags for everything on a device.
ENTRY = {
    "dataset.sklearn_digits": ("hald.data.prepare", "hald.data.sources.sklearn_digits"),
    "dataset.torchvision": ("hald.data.prepare", "hald.data.sources.torchvision"),
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
        "hald.code_digests",
        "hald.errors",
        "hald.files",
        "hald.jobs.claims",
        "hald.jobs.gpu_lease",
        "hald.jobs.job",
        "hald.jobs.log",
        "hald.jobs.scratch",
        "hald.jobs.script",
        "hald.jobs.signals",
        "hald.jobs.units",
        "hald.keys",
        "hald.same_origin",
        "hald.slurm",
        "hald.synthesis.preview",
    }
)


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
        if module in sources and module not in NUMBERLESS:
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
