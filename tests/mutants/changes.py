"""What can be changed in a module: a list of candidates from its syntax tree, each a few characters of text."""

import ast
import copy
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

KINDS = (
    "constant",
    "string",
    "comparison",
    "arithmetic",
    "logic",
    "guard",
    "dropped argument",
    "swapped arguments",
    "swapped names",
    "removed statement",
)

# Words for people: nothing in these calls is changed (of `option` the meaning only).
WORDY = {"UserError", "ValueError", "TypeError", "Progress", "print", "warn", "TypeVar", "ParamSpec"}
LOGS = {"log", "logger", "progress", "warnings"}
# Types that stand in expressions.
TYPES = {"Literal", "NDArray", "Callable", "Union", "Optional", "Mapping", "Sequence", "Iterable", "Iterator"}
TYPES |= {"dict", "list", "tuple", "set", "frozenset", "type", "Any", "ClassVar", "TypeAlias"}
# Arguments that only check, name an encoding, or place tensors on a device: without a GPU nobody can see them.
SILENT = {"strict", "encoding", "errors", "exist_ok", "parents", "missing_ok", "ignore_errors", "stacklevel"}
SILENT |= {"device", "non_blocking", "pin_memory", "memory_format", "indent", "ensure_ascii"}
SILENT |= {"help", "description", "metavar"}
# How a figure looks is nobody's number (modules below `plots` only).
LOOKS = {"figsize", "height_ratios", "width_ratios", "fontsize", "size", "color", "colors", "alpha", "lw", "linewidth"}
LOOKS |= {"elinewidth", "capsize", "marker", "markersize", "mfc", "ec", "fc", "zorder", "pad", "ha", "va", "loc", "ls"}
LOOKS |= {"weight", "ncols", "layout", "clip_on", "interpolation", "rotation", "textcoords", "xytext", "edgecolor"}
COMMUTING = {"max", "min", "isinstance", "issubclass", "gcd", "hasattr"}

COMPARED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
COMPUTED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
SIGNS = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.And: "and",
    ast.Or: "or",
}

Span = tuple[int, int, str]  # bytes from, bytes to, what stands there instead


@dataclass(frozen=True, eq=False)
class Candidate:
    """One possible change: `new` in the place of `old`; `text` says it with few characters where that can be done."""

    kind: str
    old: ast.AST
    new: ast.AST
    text: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Signature:
    """Positional parameters of a function or class, and how many of them (from the end) have defaults."""

    names: tuple[str, ...]
    defaults: int

    def optional(self, position: int) -> bool:
        return len(self.names) - self.defaults <= position < len(self.names)


Signatures = Mapping[str, list[Signature]]


def signatures(trees: Mapping[str, ast.Module]) -> dict[str, list[Signature]]:
    """All functions, methods and dataclasses of the package by their last name."""
    found: dict[str, list[Signature]] = {}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args) if arg.arg not in ("self", "cls")]
                found.setdefault(node.name, []).append(Signature(tuple(names), len(node.args.defaults)))
            elif isinstance(node, ast.ClassDef):
                fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
                names = [ast.unparse(field.target) for field in fields]
                defaults = sum(field.value is not None for field in fields)
                found.setdefault(node.name, []).append(Signature(tuple(names), defaults))
    return found


def candidates(module: str, source: str, known: Signatures) -> list[Candidate]:
    """Every change of a module, in the order of its text."""
    tree = ast.parse(source)
    found = [*_Finder(Text(source), known, "plots" in module.split(".")).of(tree)]
    return sorted(found, key=lambda item: (item.old.lineno, item.old.col_offset, item.kind))  # type: ignore[attr-defined]


def changed(source: str, candidate: Candidate) -> str | None:
    """The module's text with the change; None where the text cannot be put together."""
    tree = ast.parse(source)
    wanted = _same(swapped(tree, _twin(tree, candidate.old), candidate.new))
    old = _outermost(tree, _twin(tree, candidate.old))
    new = swapped(old, _twin(tree, candidate.old), candidate.new)
    whole, words = Text(source).span(old), ast.unparse(new)
    if isinstance(new, ast.Constant) and isinstance(new.value, str):
        words = f'"{new.value}"'
    for spans in (candidate.text, ((*whole, words),), ((*whole, ast.unparse(new)),), ((*whole, f"({words})"),)):
        if spans:
            text = Text(source).replaced(spans)
            try:
                if _same(ast.parse(text)) == wanted:
                    return text
            except SyntaxError:
                continue
    return None


def _same(tree: ast.AST) -> str:
    """A tree as its own text would be read again (neighbouring pieces of an f-string are one)."""
    return ast.dump(ast.parse(ast.unparse(tree)))


class Text:
    """Source text by bytes, as syntax trees count columns."""

    def __init__(self, source: str) -> None:
        self.bytes = source.encode()
        self.starts = [0]
        for line in self.bytes.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """First and last byte of a node."""
        first = self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return first, self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def between(self, a: ast.AST, b: ast.AST) -> tuple[int, int]:
        return self.span(a)[1], self.span(b)[0]

    def of(self, span: tuple[int, int]) -> str:
        return self.bytes[slice(*span)].decode()

    def replaced(self, spans: tuple[Span, ...]) -> str:
        text = self.bytes
        for first, last, new in sorted(spans, reverse=True):
            text = text[:first] + new.encode() + text[last:]
        return text.decode()


class _Finder:
    """Walks a tree; leaves out what nobody can notice."""

    def __init__(self, text: Text, known: Signatures, figure: bool) -> None:
        self.text, self.known, self.figure = text, known, figure

    def of(self, node: ast.AST) -> Iterator[Candidate]:
        """Candidates of a node and of all below it."""
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Raise | ast.Assert | ast.Global | ast.Nonlocal):
            return
        if isinstance(node, ast.stmt):
            if _is_docstring(node) or _is_type(node):
                return
            yield from self.statement(node)
        if isinstance(node, ast.expr):
            if isinstance(node, ast.Subscript) and _last_name(node.value) in TYPES:
                return
            yield from self.expression(node)
        for child in self.below(node):
            yield from self.of(child)

    def below(self, node: ast.AST) -> Iterator[ast.AST]:
        """The children that are looked at."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from (*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body)
        elif isinstance(node, ast.ClassDef):
            if not any(_last_name(base) == "Protocol" for base in node.bases):
                yield from node.body
        elif isinstance(node, ast.AnnAssign):
            if node.value:
                yield node.value
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        elif isinstance(node, ast.Call):
            yield from self.arguments(node)
        elif isinstance(node, ast.FormattedValue):
            yield node.value
            yield from (node.format_spec,) if node.format_spec else ()
        elif isinstance(node, ast.Dict) and self.figure:
            yield from (value for value in node.values if not isinstance(value, ast.Constant))
        else:
            yield from ast.iter_child_nodes(node)

    def arguments(self, call: ast.Call) -> Iterator[ast.AST]:
        name = _last_name(call.func)
        if name in WORDY or _first_name(call.func) in LOGS:
            return
        yield call.func
        yield from call.args[1:] if name in ("option", "cast") else call.args
        yield from (keyword for keyword in call.keywords if self.counts(keyword))

    def counts(self, keyword: ast.keyword) -> bool:
        """Whether an argument could change a number."""
        look = self.figure and (keyword.arg in LOOKS or isinstance(keyword.value, ast.Constant))
        return keyword.arg not in SILENT and not look

    def statement(self, node: ast.stmt) -> Iterator[Candidate]:
        if isinstance(node, ast.AugAssign):
            yield Candidate("removed statement", node, ast.Pass())
            if type(node.op) in COMPUTED and not _words(node.value):
                yield self.operator("arithmetic", node, node.target, node.value, COMPUTED[type(node.op)], "=")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if _last_name(node.value.func) not in WORDY and _first_name(node.value.func) not in LOGS:
                yield Candidate("removed statement", node, ast.Pass())
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            yield from self.pairs("swapped names", node.value, node.value.elts)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            yield from self.pairs("swapped names", node.targets[0], node.targets[0].elts)
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Tuple):
            yield from self.pairs("swapped names", node.target, node.target.elts)
        elif isinstance(node, ast.If):
            if all(isinstance(item, ast.Raise) for item in node.body):
                yield Candidate("guard", node.test, ast.Constant(False))
            yield from self.negated(node.test)

    def expression(self, node: ast.expr) -> Iterator[Candidate]:
        if isinstance(node, ast.Constant):
            yield from _numbers(node)
        elif isinstance(node, ast.Compare):
            yield from self.comparison(node)
            for item in (node.left, *node.comparators):
                yield from _strings(item)
        elif isinstance(node, ast.BinOp):
            if type(node.op) in COMPUTED and not (_words(node.left) or _words(node.right)):
                yield self.operator("arithmetic", node, node.left, node.right, COMPUTED[type(node.op)])
        elif isinstance(node, ast.BoolOp):
            yield self.boolean(node)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            first = self.text.span(node)[0]
            yield Candidate("logic", node, node.operand, ((first, self.text.span(node.operand)[0], ""),))
        elif isinstance(node, ast.IfExp):
            yield from self.negated(node.test)
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            yield from self.comprehension(node)
        elif isinstance(node, ast.Call):
            yield from self.call(node)
        elif isinstance(node, ast.Subscript):
            yield from _strings(node.slice)
        elif isinstance(node, ast.Dict):
            for key in node.keys:
                yield from _strings(key)
        elif isinstance(node, ast.JoinedStr):
            for part in node.values:
                if isinstance(part, ast.FormattedValue) and isinstance(part.format_spec, ast.JoinedStr):
                    yield from _digits(part.format_spec)

    def operator(
        self, kind: str, node: ast.AST, left: ast.AST, right: ast.AST, new: type[ast.AST], after: str = ""
    ) -> Candidate:
        """Another operator between two operands."""
        op = type(node.op)  # type: ignore[attr-defined]
        gap = self.text.between(left, right)
        text = self.text.of(gap).replace(SIGNS[op] + after, SIGNS[new] + after, 1)
        return Candidate(kind, node, _with(node, op=new()), ((*gap, text),))

    def comparison(self, node: ast.Compare) -> Iterator[Candidate]:
        operands = [node.left, *node.comparators]
        for i, op in enumerate(node.ops):
            other = COMPARED[type(op)]
            gap = self.text.between(operands[i], operands[i + 1])
            text = self.text.of(gap).replace(SIGNS[type(op)], SIGNS[other], 1)
            ops = [*node.ops[:i], other(), *node.ops[i + 1 :]]
            yield Candidate("comparison", node, _with(node, ops=ops), ((*gap, text),))

    def boolean(self, node: ast.BoolOp) -> Candidate:
        other = ast.Or if isinstance(node.op, ast.And) else ast.And
        spans = []
        for a, b in zip(node.values, node.values[1:], strict=False):
            gap = self.text.between(a, b)
            spans.append((*gap, self.text.of(gap).replace(SIGNS[type(node.op)], SIGNS[other], 1)))
        return Candidate("logic", node, _with(node, op=other()), tuple(spans))

    def negated(self, test: ast.expr) -> Iterator[Candidate]:
        """A condition turned round, where no other change does that."""
        plain = isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.NamedExpr)
        if plain and not (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"):
            yield Candidate("logic", test, ast.UnaryOp(ast.Not(), test))

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Iterator[Candidate]:
        for part in node.generators:
            for test in part.ifs:
                yield from self.negated(test)
            if isinstance(part.target, ast.Tuple):
                yield from self.pairs("swapped names", part.target, part.target.elts)

    def call(self, node: ast.Call) -> Iterator[Candidate]:
        name = _last_name(node.func)
        if name in WORDY or _first_name(node.func) in LOGS:
            return
        if name in ("get", "pop", "setdefault", "getattr") and node.args:
            yield from _strings(node.args[1 if name == "getattr" and len(node.args) > 1 else 0])
        yield from self.dropped(node, name)
        if name not in COMMUTING:
            yield from self.pairs("swapped arguments", node, node.args)
        values = [keyword for keyword in node.keywords if keyword.arg and self.counts(keyword)]
        for a, b in itertools.pairwise(values):
            if _is_name(a.value) and _is_name(b.value) and ast.dump(a.value) != ast.dump(b.value):
                new = swapped(swapped(node, a, _with(a, value=b.value)), b, _with(b, value=a.value))
                yield Candidate("swapped arguments", node, new, self.exchanged(a.value, b.value))

    def dropped(self, node: ast.Call, name: str) -> Iterator[Candidate]:
        known = self.known.get(name, [])
        for keyword in node.keywords:
            needed = any(keyword.arg in one.names and not one.optional(one.names.index(keyword.arg)) for one in known)
            if keyword.arg and self.counts(keyword) and not needed:
                yield self.without(node, keyword)
        last = len(node.args) - 1
        if known and last >= 0 and name != "option" and all(one.optional(last) for one in known):
            yield self.without(node, node.args[last])

    def without(self, node: ast.Call, gone: ast.AST) -> Candidate:
        every = sorted([*node.args, *node.keywords], key=self.text.span)
        at = every.index(gone)
        first, last = self.text.span(gone)
        if at:
            first = self.text.span(every[at - 1])[1]
        else:
            last = self.text.span(every[1])[0] if len(every) > 1 else self.text.span(node)[1] - 1
        args = [arg for arg in node.args if arg is not gone]
        keywords = [keyword for keyword in node.keywords if keyword is not gone]
        return Candidate("dropped argument", node, _with(node, args=args, keywords=keywords), ((first, last, ""),))

    def pairs(self, kind: str, node: ast.expr, items: list[ast.expr]) -> Iterator[Candidate]:
        """Neighbours exchanged, where both are names of something."""
        for a, b in itertools.pairwise(items):
            if _is_name(a) and _is_name(b) and ast.dump(a) != ast.dump(b):
                mark = ast.Name("_exchanged", ast.Load())
                new = swapped(swapped(swapped(node, a, mark), b, a), mark, b)
                yield Candidate(kind, node, new, self.exchanged(a, b))

    def exchanged(self, a: ast.AST, b: ast.AST) -> tuple[Span, ...]:
        one, two = self.text.span(a), self.text.span(b)
        return (*one, self.text.of(two)), (*two, self.text.of(one))


def _numbers(node: ast.Constant) -> Iterator[Candidate]:
    """A number moved: an int by one, a float by one percent; 0.0 and 1.0, True and False also exchanged."""
    value = node.value
    if isinstance(value, bool):
        yield Candidate("constant", node, ast.Constant(not value))
    elif isinstance(value, int):
        yield Candidate("constant", node, ast.Constant(value + 1))
    elif isinstance(value, float):
        yield Candidate("constant", node, ast.Constant(float(f"{value * 1.01:.12g}") if value else 0.01))
        if value in (0.0, 1.0):
            yield Candidate("constant", node, ast.Constant(1.0 - value))


def _strings(node: ast.AST | None) -> Iterator[Candidate]:
    """Another string, where one is compared or looked up (also one of several: `in ("a", "b")`)."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        for item in node.elts:
            yield from _strings(item)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield Candidate("string", node, ast.Constant(node.value + "_"))


def _digits(spec: ast.JoinedStr) -> Iterator[Candidate]:
    """One digit more in a printed number."""
    for part in spec.values:
        if isinstance(part, ast.Constant) and re.search(r"\.\d", part.value):
            more = re.sub(r"\.(\d)", lambda found: f".{int(found[1]) + 1}", part.value, count=1)
            yield Candidate("constant", part, ast.Constant(more))


def _with(node: ast.AST, **fields: object) -> ast.AST:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def swapped(root: ast.AST, old: ast.AST, new: ast.AST) -> ast.AST:
    """A copy of `root` (where something changes) with `new` in the place of `old`."""
    if root is old:
        return new
    fields: dict[str, object] = {}
    for name, value in ast.iter_fields(root):
        if isinstance(value, ast.AST):
            other: object = swapped(value, old, new)
        elif isinstance(value, list):
            items = [swapped(item, old, new) if isinstance(item, ast.AST) else item for item in value]
            other = items if any(a is not b for a, b in zip(items, value, strict=True)) else value
        else:
            continue
        if other is not value:
            fields[name] = other
    return _with(root, **fields) if fields else root


def _twin(tree: ast.AST, node: ast.AST) -> ast.AST:
    """The node of another parse of the same text that is like this one."""
    place = _place(node)
    return next(item for item in ast.walk(tree) if type(item) is type(node) and _place(item) == place)


def _place(node: ast.AST) -> tuple[object, ...]:
    names = ("lineno", "col_offset", "end_lineno", "end_col_offset")
    return (*(getattr(node, name, None) for name in names), ast.dump(node))


def _outermost(tree: ast.AST, node: ast.AST) -> ast.AST:
    """The f-string around a node, if there is one: places inside it are not reliable before Python 3.12."""
    for item in ast.walk(tree):
        if isinstance(item, ast.JoinedStr) and any(below is node for below in ast.walk(item)):
            return item
    return node


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _first_name(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return node.id if isinstance(node, ast.Name) else ""


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute | ast.Subscript)


def _words(node: ast.AST) -> bool:
    """Text, lists and paths, which have no other operator."""
    if isinstance(node, ast.BinOp):
        return _words(node.left) or _words(node.right)
    text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return text or isinstance(node, ast.JoinedStr | ast.List | ast.Tuple | ast.Dict | ast.ListComp)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_type(node: ast.stmt) -> bool:
    """`__all__` and names of types."""
    if not isinstance(node, ast.Assign):
        return False
    value = node.value
    while isinstance(value, ast.BinOp):
        value = value.left
    typed = isinstance(value, ast.Subscript) and _last_name(value.value) in TYPES
    return typed or any(_last_name(target) == "__all__" for target in node.targets)
