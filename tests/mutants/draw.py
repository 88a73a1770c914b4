"""Which changes are tried: drawn evenly over the modules by a seed, or given by hand."""

import ast
import difflib
import fnmatch
import functools
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mutants.changes import Candidate, candidates, changed, signatures
from mutants.cover import Cover, Test, module_of
from mutants.places import Uses, place_of

# These cannot change a number: they lock, log, move files, show progress, read command lines, size jobs, tidy up.
LEFT_OUT = (
    *("hald.errors", "hald.files", "hald.jobs*", "hald.cluster*", "hald.cli*", "hald.progress*"),
    *("hald.cli.leftovers", "hald.labels.describe"),
    "hald.*.preview",
)
EQUIVALENT = Path(__file__).parents[1] / "equivalent_mutants.txt"
Choice = Callable[[Candidate], bool]


@dataclass(frozen=True)
class Mutant:
    """One change of one file, and the tests that run what is changed."""

    path: str
    module: str
    kind: str
    line: int
    function: str
    old: str
    new: str
    text: str
    tests: tuple[Test, ...]

    def __str__(self) -> str:
        return f"{self.path}:{self.line} | {self.old} | {self.new}"

    @property
    def address(self) -> str:
        """Where it is, without line numbers."""
        return f"{self.module} {self.function} | {self.old} | {self.new}"


@dataclass
class Source:
    """The package as it is below a folder."""

    folder: Path
    texts: dict[str, str] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in sorted(self.folder.glob("src/hald/**/*.py")):
            module = module_of(str(path.relative_to(self.folder / "src")))
            self.texts[module] = path.read_text(encoding="utf-8")
            self.paths[module] = str(path.relative_to(self.folder))

    @functools.cached_property
    def trees(self) -> dict[str, ast.Module]:
        return {module: ast.parse(text) for module, text in self.texts.items()}

    @functools.cached_property
    def uses(self) -> Uses:
        return Uses(self.trees)


def is_drawn(module: str) -> bool:
    """Whether a module can change a number."""
    return not any(fnmatch.fnmatch(module, pattern) for pattern in LEFT_OUT)


def moves_a_number(item: Candidate) -> bool:
    """Whether a float moves by one percent, or an int by one."""
    old, new = getattr(item.old, "value", None), getattr(item.new, "value", None)
    return item.kind == "constant" and type(old) in (int, float) and new != 1.0 - old  # type: ignore[operator]


def draw(source: Source, cover: Cover, number: int, seed: int, modules: str, choice: Choice) -> list[Mutant]:
    """Changes in turn from every module, and within a module in turn of every kind."""
    known, queues = signatures(source.trees), {}
    for module in filter(is_drawn, fnmatch.filter(source.texts, modules)):
        found = [item for item in candidates(module, source.texts[module], known) if choice(item)]
        queue = _in_turn(found, random.Random(f"{seed} {module}"))
        queues[module] = _made(queue, module, source, cover)
    order = sorted(queues)
    random.Random(seed).shuffle(order)
    drawn: list[Mutant] = []
    while order and len(drawn) < number:
        for module in order[: number - len(drawn)]:
            mutant = next(queues[module], None)
            if mutant is None:
                order.remove(module)
            else:
                drawn.append(mutant)
    return drawn


def _in_turn(found: list[Candidate], rng: random.Random) -> Iterator[Candidate]:
    kinds: dict[str, list[Candidate]] = defaultdict(list)
    for item in found:
        kinds[item.kind].append(item)
    for items in kinds.values():
        rng.shuffle(items)
    order = sorted(kinds)
    rng.shuffle(order)
    while order:
        for kind in [*order]:
            yield kinds[kind].pop()
            if not kinds[kind]:
                order.remove(kind)


def _made(queue: Iterator[Candidate], module: str, source: Source, cover: Cover) -> Iterator[Mutant]:
    for item in queue:
        text = changed(source.texts[module], item)
        if text is not None:
            yield mutant_of(module, item.kind, item.old.lineno, text, source, cover)  # type: ignore[attr-defined]


def mutant_of(module: str, kind: str, line: int, text: str, source: Source, cover: Cover) -> Mutant:
    """A change at a line, with the tests that run it."""
    place = place_of(source.trees[module], line)
    at, old, new = difference(source.texts[module], text)
    tests = tuple(cover.of(module, place, source.uses))
    return Mutant(source.paths[module], module, kind, at, place.function, old, new, text, tests)


def difference(before: str, after: str) -> tuple[int, str, str]:
    """First changed line, and the lines that differ, before and after, as one line each."""
    a, b = before.splitlines(), after.splitlines()
    codes = [code for code in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes() if code[0] != "equal"]
    first, last = codes[0], codes[-1]
    one, two = (" ".join(" ".join(part).split()) for part in (a[first[1] : last[2]], b[first[3] : last[4]]))
    return first[1] + 1, one, two


def from_file(file: Path, source: Source, cover: Cover) -> Iterator[Mutant]:
    """Changes by hand: a line `path:line | old text | new text` each, of any file of the project."""
    for entry in file.read_text(encoding="utf-8").splitlines():
        if not entry.strip() or entry.startswith("#"):
            continue
        address, _, rest = entry.partition(" | ")
        path, _, number = address.strip().rpartition(":")
        module = module_of(path.removeprefix("src/"))
        before = source.texts.get(module) or (source.folder / path).read_text(encoding="utf-8")
        found = [*replaced(before, int(number), rest.split(" | "))]
        if len(found) != 1:
            raise SystemExit(f"{file}: at {path}:{number} there are {len(found)} places for this change: {entry}")
        if module in source.texts:
            yield mutant_of(module, "by hand", int(number), found[0], source, cover)
        else:  # a file that is no module: any test may read it
            at, old, new = difference(before, found[0])
            tests = tuple(sorted(cover.tests.values(), key=lambda test: test.seconds))
            yield Mutant(path, path, "by hand", at, "", old, new, found[0], tests)


def replaced(before: str, number: int, parts: list[str]) -> Iterator[str]:
    """The text with `old | new` done at a line, by every way to tell the two apart that fits the line."""
    start = sum(len(line) for line in before.splitlines(keepends=True)[: number - 1])
    for cut in range(1, len(parts)):
        old, new = " | ".join(parts[:cut]).strip(), " | ".join(parts[cut:]).strip()
        found = re.compile(r"\s+".join(re.escape(word) for word in old.split())).search(before, start)
        if found and old and before.count("\n", 0, found.start()) == number - 1:
            yield before[: found.start()] + new + before[found.end() :]


def called_equivalent(drawn: list[Mutant]) -> list[Mutant]:
    """Changes that nobody can observe, listed by hand with the reason."""
    lines = EQUIVALENT.read_text(encoding="utf-8").splitlines() if EQUIVALENT.exists() else []
    return [mutant for mutant in drawn if any(line.startswith(f"{mutant.address} | ") for line in lines)]
