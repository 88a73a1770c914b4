"""Who may import whom: folders in the order of the pipeline, and no torch where things are decided."""

import ast
from collections.abc import Iterator

import pytest

from hald.code_digests import read_sources

SOURCES = read_sources()
# The work, from left to right: a module imports from its own folder and those before it.
ORDER = ("cluster", "jobs", "numerics", "networks", "datasets", "squeeze", "synthesis", "labels", "evaluation")
ORDER = (*ORDER, "analysis", "report")
# What decides: settings, specs and plans of every folder, and these. It never computes.
DECIDING = ("config", "plan", "progress", "cli", "pipeline", "preflight", "settings", "source_changes")
HALVES = ("settings", "spec", "plan", "protocol", "grids", "names")
TOP = ("code_digests", "errors", "files", "keys", "plain", "registry", "same_origin")
SHARED = ("hald.networks.names", "hald.synthesis.class_folders", "hald.labels.codec")  # names, files, sizes: for both
LAZY = ("cli", "preflight")  # they import the work inside of functions, when it is asked for


def decides(module: str) -> bool:
    """Whether a module belongs to the deciding half."""
    folders = module.split(".")[1:]
    return bool(folders) and (folders[0] in DECIDING or folders[-1] in HALVES)


def imported(module: str, inside_functions: bool = True) -> Iterator[str]:
    """The modules that one imports, by their full names."""
    tree = ast.parse(SOURCES[module])
    nodes = ast.walk(tree) if inside_functions else iter(tree.body)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in SOURCES else str(node.module)


def place(module: str) -> int:
    """Where a module of the work stands; the top of the package comes first."""
    folders = module.split(".")[1:]
    if folders[:2] == ["analysis", "kinds"] and folders[-1] == "figure":
        return ORDER.index("report")
    return ORDER.index(folders[0]) if folders and folders[0] in ORDER else -1


@pytest.mark.parametrize("module", sorted(name for name in SOURCES if place(name) >= 0 and not decides(name)))
def test_the_work_imports_to_the_left(module: str) -> None:
    for other in imported(module):
        if other.startswith("hald."):
            folder = other.split(".")[1]
            own = other.rpartition(".")[2] == "spec" or not decides(other) or other in SHARED
            assert own, f"{module} imports {other}, which decides"
            assert folder in (*TOP, *ORDER), other
            assert place(other) <= place(module), f"{module} imports {other}, which comes later"


def test_the_top_imports_nothing_of_the_pipeline() -> None:
    for name in TOP:
        others = {other for other in imported(f"hald.{name}") if other.startswith("hald.")}
        assert others <= {f"hald.{top}" for top in TOP}, name


@pytest.mark.parametrize("module", sorted(name for name in SOURCES if decides(name)))
def test_what_decides_does_not_compute(module: str) -> None:
    lazy = module.split(".")[1] in LAZY
    for other in imported(module, inside_functions=not lazy):
        assert other.split(".")[0] not in ("torch", "torchvision", "zarr", "matplotlib", "snakemake"), other
        if other.startswith("hald.") and not decides(other) and other not in SHARED:
            assert other.split(".")[1] in (*TOP, "cluster", "jobs"), f"{module} imports {other}, which works"


def test_snakemake_is_imported_by_rules_alone() -> None:
    users = {name for name in SOURCES if any(other.split(".")[0] == "snakemake" for other in imported(name))}
    assert users <= {"hald.cluster.slurm_plugin"}
