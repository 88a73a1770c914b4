"""Where the source behind a stage differs from what it was, statement by statement, and what of that was not run.

A statement is its text, where it is nested, and what its names stand for. So words, layout, imports and moves between
modules are no changes, while a name that now means another function is one.
"""

import ast
import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from hald.code_digests import without_words

Lines = set[tuple[str, int]]  # (module, line)
STATEMENT = (ast.stmt, ast.ExceptHandler, ast.match_case)
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
IMPORT = (ast.Import, ast.ImportFrom)
BODIES = ("body", "handlers", "cases", "orelse", "finalbody")


@dataclass(frozen=True)
class Statement:
    """A statement without those inside it."""

    module: str
    line: int
    lines: range  # it counts as run when one of these is
    text: str
    meanings: frozenset[tuple[str, str]]  # its names, and the definitions and imports that they stand for
    words: frozenset[str]  # all names in it, attributes and short texts too
    function: str  # around it; empty: it runs on import
    binds: frozenset[str]  # names that it binds on import

    @property
    def head(self) -> str:
        """Its first line, for people."""
        return self.text.partition("|")[2].splitlines()[-1 if self.text.partition("|")[2].startswith("@") else 0]

    def is_in(self, lines: Lines) -> bool:
        """Whether it was run."""
        return any((self.module, line) in lines for line in self.lines)


@dataclass(frozen=True)
class Unit:
    """What stands at the top of a module: a function, a class, a constant; or a loop or a call (`loose`)."""

    place: str  # module:name
    names: frozenset[str]  # by which others name it; of a loose one, what it names itself, because it may change that
    loose: bool
    text: str
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Unseen:
    """A change that was not run."""

    module: str
    line: int
    text: str


class Code:
    """The modules behind a stage, as units by their place."""

    def __init__(self, sources: Mapping[str, str], modules: Iterable[str]) -> None:
        trees = {name: without_words(sources[name]) for name in sorted(modules)}
        self.scopes = {module: _scope(module, tree.body, sources) for module, tree in trees.items()}
        self.sources, self.units = sources, dict[str, Unit]()
        for module, tree in trees.items():
            for node in tree.body:
                text = ast.unparse(node)
                if not isinstance(node, IMPORT) and not text.startswith("if TYPE_CHECKING:"):
                    unit = self._unit(module, node, text)
                    self.units[unit.place] = unit

    def _unit(self, module: str, node: ast.stmt, text: str) -> Unit:
        statements = tuple(self._statements(module, node, "", "", self.scopes[module]))
        bound = _bound(node)
        loose = not bound or not isinstance(node, (*FUNCTION, ast.ClassDef, ast.Assign, ast.AnnAssign))
        names = {where for s in statements for _, where in s.meanings} if loose else {f"{module}:{n}" for n in bound}
        number = sum(unit.loose and unit.statements[0].module == module for unit in self.units.values())
        place = f"{module}:{number if loose else ', '.join(sorted(bound))}"
        while place in self.units:  # bound once more
            place += "'"
        return Unit(place, frozenset(names), loose, text, statements)

    def _statements(
        self, module: str, node: ast.AST, nested: str, function: str, scope: Mapping[str, str]
    ) -> Iterator[Statement]:
        """A statement and those inside it. Imports are none: they show in what names stand for."""
        if isinstance(node, IMPORT):
            return
        own = list(_own(node))
        bodies = {name: [part for part in getattr(node, name, ()) if isinstance(part, STATEMENT)] for name in BODIES}
        first = min(part.lineno for part in own if hasattr(part, "lineno"))
        parts = own[1:] if any(bodies.values()) else own
        last = max((part.end_lineno or first for part in parts if hasattr(part, "end_lineno")), default=first)
        binds = frozenset() if function else frozenset(_bound(node))
        lines, inner = range(first, last + 1), function
        if isinstance(node, FUNCTION):
            inner = f"{nested}{node.name}"
            scope = {**scope, **_scope(module, ast.walk(node), self.sources, only_imports=True)}
            if not function:  # its head runs on import, but counts when the function is called
                lines, binds = range(node.body[0].lineno, (node.end_lineno or first) + 1), frozenset()
        meanings = frozenset((name, where) for part in own for name, where in self._meaning(part, scope))
        words = frozenset(word for part in own for word in _words(part)) - binds
        head = inner if isinstance(node, FUNCTION) else function
        yield Statement(module, first, lines, f"{nested}|{_head(node)}", meanings, words, head, binds)
        for name, body in bodies.items():
            within = f"{nested}{node.name}." if isinstance(node, (*FUNCTION, ast.ClassDef)) else f"{nested}{name}/"
            for part in body:
                yield from self._statements(module, part, within, inner, scope)

    def _meaning(self, node: ast.AST, scope: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """What a name, or an attribute of a module, stands for."""
        if isinstance(node, ast.Name) and node.id in scope:
            yield node.id, self._followed(scope[node.id])
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = self._followed(scope.get(node.value.id, ""))
            if owner in self.scopes:
                yield node.attr, self._followed(f"{owner}:{node.attr}")

    def _followed(self, place: str) -> str:
        """The definition behind a chain of imports."""
        module, _, name = place.partition(":")
        if module in self.sources and module not in self.scopes:
            return f":{name}"  # of code that changes no number, wherever it is
        further = self.scopes.get(module, {}).get(name, place)
        return place if further == place else self._followed(further)

    def named(self, start: Iterable[Statement], whole: bool) -> tuple[set[str], set[str]]:
        """The places and words that statements name, directly or through units that they name.

        `whole`: through all that is in such a unit; else through what of it runs on import.
        """
        places: set[str] = set()
        words: set[str] = set()
        known: set[str] = set()
        waiting = list(start)
        while waiting:
            for statement in waiting:
                words |= statement.words
                places |= {where for _, where in statement.meanings}
            fresh = {unit for unit in self.units.values() if unit.names & places and unit.place not in known}
            known |= {unit.place for unit in fresh}
            waiting = [s for unit in fresh for s in unit.statements if whole or not s.function]
        return places, words

    def run(self, lines: Lines) -> list[Unit]:
        """Functions and classes of which these lines run something."""
        return [unit for unit in self.units.values() if any(s.function and s.is_in(lines) for s in unit.statements)]

    def used(self, lines: Lines) -> tuple[set[str], set[str]]:
        """The places and words that count where these lines are run."""
        run = self.run(lines)
        start = [s for unit in run for s in unit.statements if not s.function or s.is_in(lines)]
        places, words = self.named(start, whole=False)
        return places.union(*(unit.names for unit in run)), words

    def reachable(self, entries: Iterable[str], lines: Lines) -> set[str]:
        """The places that a stage can come to: named by its entry modules, or by what these lines run, and so on."""
        own = [unit for unit in self.units.values() if unit.place.partition(":")[0] in entries] + self.run(lines)
        places, _ = self.named((s for unit in own for s in unit.statements), whole=True)
        return places.union(*(unit.names for unit in own))


def unseen_changes(old: Code, new: Code, entries: Iterable[str], lines: Lines) -> list[Unseen]:
    """Changes of code that a stage can come to, which none of these lines, all that its golden cases run, shows."""
    before = _counterparts(old, new)
    moved = {name: was for place, unit in before.items() for name, was in _renamed(unit, new.units[place])}
    reachable, shown = new.reachable(entries, lines), Shown(new, lines)
    found = set()
    for place, unit in new.units.items():
        if unit.names & reachable or not unit.names:
            for removed, added in _edits(before.get(place), unit, moved):
                found |= {Unseen(s.module, s.line, s.head) for s in added if not shown.is_run(unit, s)}
                functions = {s.function for s in added}
                for s in removed:
                    if s.function not in functions and (at := shown.missing_around(unit, s)):
                        found.add(Unseen(at.module, at.line, f"(removed) {s.head}"))
    kept = {unit.place for unit in before.values()}
    for unit in old.units.values():
        if unit.loose and unit.place not in kept:
            found.add(Unseen(unit.statements[0].module, 1, f"(removed) {unit.statements[0].head}"))
    return sorted(found, key=lambda one: (one.module, one.line, one.text))


class Shown:
    """What of a stage's code counts where some lines are run."""

    def __init__(self, code: Code, lines: Lines) -> None:
        self.lines = lines
        self.places, self.words = code.used(lines)

    def is_run(self, unit: Unit, statement: Statement) -> bool:
        """Whether a statement is run; what runs on import has to be used. (A `raise` makes no number.)"""
        if statement.function:
            return statement.is_in(self.lines) or statement.head.startswith("raise")
        whole = unit.loose or statement is unit.statements[0]
        return bool(unit.names & self.places) and (whole or bool(statement.binds & self.words))

    def missing_around(self, unit: Unit, removed: Statement) -> Statement | None:
        """Where a removed statement was, if nothing of the function around it is run."""
        around = [s for s in unit.statements if s.function == removed.function and s.function]
        is_run = any(s.is_in(self.lines) for s in around) if around else bool(unit.names & self.places)
        return None if is_run else (around or unit.statements)[0]


def _edits(
    was: Unit | None, unit: Unit, moved: Mapping[str, str]
) -> Iterator[tuple[Sequence[Statement], Sequence[Statement]]]:
    """Statements that are no longer in a unit, and those that came in their place."""
    old = was.statements if was else ()
    before, now = [_identity(s, {}) for s in old], [_identity(s, moved) for s in unit.statements]
    for what, i, j, k, m in SequenceMatcher(None, before, now, autojunk=False).get_opcodes():
        if what != "equal":
            yield old[i:j], unit.statements[k:m]


def _renamed(was: Unit, unit: Unit) -> Iterator[tuple[str, str]]:
    """The places by which others name a unit, with those of before."""
    return zip(sorted(unit.names), sorted(was.names), strict=False) if not unit.loose else iter(())


def _counterparts(old: Code, new: Code) -> dict[str, Unit]:
    """What each unit was: at the same place, or moved from another module."""
    found = {place: old.units[place] for place in new.units if place in old.units}
    left = [unit for place, unit in old.units.items() if place not in found]
    for place, unit in new.units.items():
        name = place.partition(":")[2]
        same = [one for one in left if one.text == unit.text] or [
            one for one in left if one.place.partition(":")[2] == name
        ]
        if place not in found and same:
            found[place] = same[0]
            left.remove(same[0])
    return found


def _identity(statement: Statement, moved: Mapping[str, str]) -> tuple[str, frozenset[tuple[str, str]]]:
    """What makes two statements the same; `moved` says where definitions were before."""
    return statement.text, frozenset((name, moved.get(where, where)) for name, where in statement.meanings)


def _scope(
    module: str, nodes: Iterable[ast.AST], sources: Mapping[str, str], only_imports: bool = False
) -> dict[str, str]:
    """What names stand for: `module:name` of a definition, the name of a module, or what is imported from elsewhere."""
    scope: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            scope |= {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                scope[alias.asname or alias.name] = whole if whole in sources else f"{node.module}:{alias.name}"
        elif isinstance(node, ast.stmt) and not only_imports:
            scope |= {name: f"{module}:{name}" for name in _bound(node)}
    return scope


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """A statement and its expressions."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, STATEMENT):
            yield from _own(child)


def _head(node: ast.AST) -> str:
    """The text of a statement without those inside it."""
    node = copy.copy(node)
    for name in BODIES:
        if hasattr(node, name):
            setattr(node, name, [])
    return ast.unparse(node)


def _bound(node: ast.AST) -> set[str]:
    """Names that a statement gives a value."""
    if isinstance(node, (*FUNCTION, ast.ClassDef)):
        return {node.name}
    return {part.id for part in _own(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def _words(node: ast.AST) -> set[str]:
    """Names in one node: options are reached by attributes, keywords and short texts too."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, ast.keyword) and node.arg:
        return {node.arg}
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()
