"""What made a number: a digest of the code of each part of the package, and the versions of libraries.

The digest covers the parsed source of every module that the part's entry modules import, directly or not. Docstrings,
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

# The parts of the package that keys name, and the modules that each starts from.
FIXED: dict[str, tuple[str, ...]] = {
    "squeeze": ("hald.squeeze.train",),
    "ranking": ("hald.synthesis.ranking",),
    "statistics": ("hald.synthesis.class_statistics",),
    "from_units": ("hald.synthesis.from_units",),
    "network.sre2l": ("hald.networks.sre2l",),
    "network.torchvision": ("hald.networks.torchvision",),
    "network.timm": ("hald.networks.timm",),
    "relabel": ("hald.labels.relabel",),
    "evaluate": ("hald.evaluation.train",),
    "tables": ("hald.report.render",),
}
# A plug-in is a part of its own, named by the folder's kind and itself; some start from what all of their kind share.
PLUGINS: dict[str, tuple[str, tuple[str, ...]]] = {
    "dataset": ("hald.datasets.sources", ("hald.datasets.prepare",)),
    "network": ("hald.networks.small", ()),
    "method": ("hald.synthesis.methods", ()),
    "codec": ("hald.labels.codecs", ()),
    "loss": ("hald.evaluation.losses", ()),
    "schedule": ("hald.evaluation.schedules", ()),
    "analysis": ("hald.analysis.kinds", ("hald.analysis.run",)),
    "figure": ("hald.report.figures", ("hald.report.figure",)),
}

# Calls whose positional arguments are words for people.
WORDY = frozenset({"UserError", "log.info", "log.warning", "log.error", "Progress"})

# Code that cannot change a number decides what to do, keeps jobs apart, moves files, writes messages: these folders,
# the sheets of `preview`, and all modules at the top of the package but `plain`, which reads specs.
NUMBERLESS = frozenset({"cli", "cluster", "config", "jobs", "plan", "progress"})


def is_numberless(module: str) -> bool:
    """Whether a module of this package cannot change a result."""
    folders = module.split(".")[1:-1]
    if module in ("hald.plain", "hald.synthesis.preview"):
        return module == "hald.synthesis.preview"
    return not folders or folders[0] in NUMBERLESS


def read_sources(folder: Path = SOURCE) -> dict[str, str]:
    """Source text of every module of the package, by name."""
    sources = {}
    for path in sorted(folder.rglob("*.py")):
        parts = ("hald", *path.relative_to(folder).with_suffix("").parts)
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return sources


def entry_modules(sources: Mapping[str, str] | None = None) -> dict[str, tuple[str, ...]]:
    """The modules that each part starts from: of a plug-in, its module or the `compute` of its folder."""
    sources = read_sources() if sources is None else sources
    found = dict(FIXED)
    for kind, (folder, shared) in PLUGINS.items():
        inside = (module.removeprefix(f"{folder}.") for module in sources if module.startswith(f"{folder}."))
        for name in sorted({module.partition(".")[0] for module in inside}):
            module = f"{folder}.{name}.compute" if f"{folder}.{name}.compute" in sources else f"{folder}.{name}"
            found[f"{kind}.{name}"] = (*shared, module)
    for module in sources:  # the figure of an analysis is beside it
        if module.startswith("hald.analysis.kinds.") and module.endswith(".figure"):
            found[f"figure.{module.split('.')[-2]}"] = (*PLUGINS["figure"][1], module)
    return found


def code_digests(sources: Mapping[str, str] | None = None) -> dict[str, str]:
    """Digest of the code behind each part (of this package, or of given sources)."""
    sources = read_sources() if sources is None else sources
    digests = {}
    for part, entries in entry_modules(sources).items():
        code = {name: _parsed(sources[name])[0] for name in closure(entries, sources)}
        digests[part] = hashlib.sha256(canonical(code).encode()).hexdigest()
    return digests


def digest_of(parts: Iterable[str], digests: Mapping[str, str]) -> str:
    """One digest of the code of several parts; of one, its own."""
    own = [digests[part] for part in parts]
    return own[0] if len(own) == 1 else hashlib.sha256(canonical(own).encode()).hexdigest()


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
    """A parsed module without docstrings, comments and messages, and without what a config's values are limited to."""
    tree = _Unlimited().visit(ast.parse(source))
    assert isinstance(tree, ast.Module)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            _strip_docstring(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in WORDY:
            node.args = []
    return tree


class _Unlimited(ast.NodeTransformer):
    """`x: Annotated[T, Field(...)]` -> `x: T`."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.value) == "Annotated" and isinstance(node.slice, ast.Tuple):
            return node.slice.elts[0]
        return node


def _strip_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    if ast.get_docstring(node, clean=False) is not None:
        nothing: list[ast.stmt] = [] if isinstance(node, ast.Module) else [ast.copy_location(ast.Pass(), node.body[0])]
        node.body = node.body[1:] or nothing


def versions(*packages: str) -> dict[str, str]:
    """Installed versions, for records."""
    return {name: importlib.metadata.version(name) for name in packages}


if __name__ == "__main__":  # `hald bless` asks earlier commits for their digests, and for the modules behind them
    known = read_sources()
    behind = {part: sorted(closure(entries, known)) for part, entries in entry_modules(known).items()}
    print(json.dumps({"digests": code_digests(known), "modules": behind}))
