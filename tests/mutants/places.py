"""Where a change stands, and which lines of the package show that it is run."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Lines = set[tuple[str, int]]  # (module, line)
COMPOUND = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.If, ast.For, ast.While, ast.With, ast.Try)
COMPOUND = (*COMPOUND, ast.Match, ast.ExceptHandler, ast.match_case)


@dataclass(frozen=True)
class Place:
    """A line of a module: the function around it, the lines that tell whether it was run, or the names that it binds.

    What stands outside functions runs on import. Then the uses of its names tell who depends on it.
    """

    function: str
    lines: range
    names: frozenset[str] = frozenset()


def place_of(tree: ast.Module, line: int) -> Place:
    """The place of a line."""
    path = list(_path(tree, line))
    around = [node for node in path if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    function = ".".join(node.name for node in around)
    last: Any = path[-1] if path else tree
    inside = [node for node in around if not isinstance(node, ast.ClassDef)]
    if inside:
        if last is inside[-1]:  # its head: defaults of arguments
            return Place(function, range(last.body[0].lineno, last.end_lineno + 1))
        end = last.body[0].lineno - 1 if getattr(last, "body", None) and last.body is not None else last.end_lineno
        return Place(function, range(last.lineno, max(end, last.lineno) + 1))
    names = {name for node in path for name in bound(node)}
    return Place(function or "<module>", range(line, line + 1), frozenset(names))


def _path(tree: ast.AST, line: int) -> Iterator[ast.AST]:
    """Statements around a line, from the outside."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case) and _first(node) <= line <= _end(node):
            yield node
            yield from _path(node, line)


def _first(node: ast.AST) -> int:
    decorators = getattr(node, "decorator_list", None)
    return int(decorators[0].lineno if decorators else getattr(node, "lineno", 0) or node.pattern.lineno)  # type: ignore[attr-defined]


def _end(node: ast.AST) -> int:
    return int(getattr(node, "end_lineno", 0) or node.body[-1].end_lineno)  # type: ignore[attr-defined]


def bound(node: ast.AST) -> set[str]:
    """Names that a statement outside functions binds."""
    if isinstance(node, ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    found = (item for target in targets if isinstance(target, ast.AST) for item in ast.walk(target))
    return {item.id for item in found if isinstance(item, ast.Name)}


class Uses:
    """In which lines of functions a name is used, directly or through other names that are bound on import."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self.lines: dict[str, Lines] = {}
        self.through: dict[str, set[str]] = {}
        for module, tree in trees.items():
            self._collect(module, tree, None)

    def _collect(self, module: str, node: ast.AST, names: set[str] | None) -> None:
        """`names`: what the statement around binds on import; None inside functions and at the top."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                for inside in ast.walk(child):
                    for name in _used(inside):
                        self.lines.setdefault(name, set()).add((module, inside.lineno))  # type: ignore[attr-defined]
            else:
                mine = (names or set()) | bound(child) if isinstance(child, ast.stmt) else names
                for name in _used(child):
                    self.through.setdefault(name, set()).update((mine or set()) - {name})
                self._collect(module, child, mine)

    def of(self, names: frozenset[str]) -> Lines:
        """Lines of functions in which any of these names counts."""
        seen: set[str] = set()
        waiting = set(names)
        while waiting:
            name = waiting.pop()
            seen.add(name)
            waiting |= self.through.get(name, set()) - seen
        return {line for name in seen for line in self.lines.get(name, ())}


def _used(node: ast.AST) -> set[str]:
    """Names in one node: also attributes, keywords and strings, because options are reached by all of these."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, ast.keyword) and node.arg:
        return {node.arg}
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
        return {node.value}
    return set()
