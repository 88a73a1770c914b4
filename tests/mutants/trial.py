"""Each change is put into a copy of the project, and the tests that run it are tried until one fails."""

import ast
import functools
import itertools
import json
import math
import os
import re
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutants.cover import Cover, Test
from mutants.draw import Mutant
from mutants.runner import Ended, Work, options, run_forked

UNCHANGED = "\n_unchanged = 0\n"  # at the end of every module: tests that only look at source text fail without us
FIRST = 20  # tests that are tried before all others are collected
TIMES = itertools.count(2_000_000_000)  # no two changed files are of one age, so compiled files are never taken for new


@dataclass
class Outcome:
    """What became of a change: it survived, or a test failed, took too long, died, or could not be imported."""

    mutant: Mutant
    how: str  # survived, failed, time, died, import
    by: str = ""
    seconds: float = 0.0
    words: str = ""

    @property
    def killed(self) -> bool:
        return self.how != "survived"


def mark(tree: Path) -> None:
    """Let every module end with a line that does nothing."""
    for path in tree.glob("src/hald/**/*.py"):
        path.write_text(path.read_text(encoding="utf-8") + UNCHANGED, encoding="utf-8")


class Trial:
    """One change in one tree."""

    def __init__(self, mutant: Mutant, tests: list[Test]) -> None:
        self.mutant, self.tests, self.before = mutant, tests, ""

    def put(self, tree: Path) -> None:
        file = tree / self.mutant.path
        self.before = file.read_text(encoding="utf-8")
        file.write_text(self.mutant.text, encoding="utf-8")
        os.utime(file, (at := next(TIMES), at))

    def restore(self, tree: Path) -> None:
        file = tree / self.mutant.path
        file.write_text(self.before, encoding="utf-8")
        os.utime(file, (at := next(TIMES), at))

    def run(self, tree: Path) -> int:
        """First the few tests that will notice it if any does: collecting those of many files takes seconds."""
        return run_tests(self.tests[:FIRST], tree) or (run_tests(self.tests[FIRST:], tree) if self.tests[FIRST:] else 0)

    @property
    def work(self) -> Work:
        return Work(self, self.run, self.put, self.restore)


def run_tests(tests: list[Test], tree: Path) -> int:
    """In a fork: these tests in this order, until one fails."""
    import pytest

    from mutants.plugins import Chosen

    report = _report(tree)
    report.unlink(missing_ok=True)
    limits = {test.name: 60 + 10 * test.whole for test in tests}
    files = list(dict.fromkeys(str(tree / test.name.partition("::")[0]) for test in tests))
    return int(pytest.main([*files, *options(tree)], [Chosen(limits, report)]))


def _report(tree: Path) -> Path:
    return tree.parent / f"{tree.name}.json"


def try_all(mutants: list[Mutant], trees: list[Path], limit: float, kept: Path) -> list[Outcome]:
    """Try every change with tests of `limit` seconds; survivors are printed as they are found.

    What is found is kept in a file, and is not tried again while the file is there.
    """
    killers: dict[str, Counter[str]] = defaultdict(Counter)  # by module: what noticed one change may notice the next
    before = _read(kept)
    outcomes = [Outcome(mutant, **before[str(mutant)]) for mutant in mutants if str(mutant) in before]
    outcomes += [Outcome(mutant, "survived") for mutant in mutants if not mutant.tests]
    for outcome in (one for one in outcomes if not one.killed):
        _tell(outcome)
    waiting = [mutant for mutant in mutants if mutant.tests and str(mutant) not in before]
    start, count = time.monotonic(), len(waiting)
    said = Said(trees[0], {test.name for mutant in mutants for test in mutant.tests})

    def works() -> Iterator[Work]:
        for mutant in waiting:
            known = killers[mutant.module] + Counter(dict(killers[""].most_common(20)))
            yield Trial(mutant, within(limit, in_order(mutant, known, said))).work

    for done, ended in enumerate(run_forked(works(), trees), 1):
        outcome = outcome_of(ended)
        outcomes.append(outcome)
        _keep(kept, outcome)
        if outcome.how == "failed":
            for place in (outcome.mutant.module, ""):
                killers[place][outcome.by] += 1
        if not outcome.killed:
            _tell(outcome)
        if done % 20 == 0:
            print(f"{done} of {count}, {(time.monotonic() - start) / done:.1f} s each", flush=True)
    return outcomes


def _tell(survivor: Outcome) -> None:
    mutant = survivor.mutant
    tests = f"{len(mutant.tests)} tests in {survivor.seconds:.0f} s" if mutant.tests else "no test runs it"
    print(f"SURVIVED {tests}, {mutant.kind} in {mutant.function}\n    {mutant}")


def _read(kept: Path) -> dict[str, dict[str, Any]]:
    """What was found before, by the change; a line that was cut off is left out."""
    found = {}
    for line in kept.read_text(encoding="utf-8").splitlines(keepends=True) if kept.exists() else ():
        if line.endswith("\n"):
            entry = json.loads(line)
            found[entry.pop("change")] = entry
    return found


def _keep(kept: Path, outcome: Outcome) -> None:
    entry = {"change": str(outcome.mutant), "how": outcome.how, "by": outcome.by}
    entry |= {"seconds": outcome.seconds, "words": outcome.words[-300:]}
    with kept.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


class Said:
    """The words of every test: its source, its name and its case. Rare ones tell what a test is about."""

    def __init__(self, tree: Path, names: Iterable[str]) -> None:
        sources: dict[str, str] = {}
        for file in tree.glob("tests/**/test_*.py"):
            text = file.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef):
                    name = f"{file.relative_to(tree)}::{node.name}"
                    sources[name] = ast.get_source_segment(text, node) or ""
        self.words = {name: _words(name + sources.get(name.partition("[")[0], "")) for name in names}
        self.often = Counter(word for found in self.words.values() for word in found)

    def relevance(self, test: str, words: set[str]) -> float:
        """How much a test speaks of these words."""
        return sum(math.log(len(self.words) / self.often[word]) for word in self.words[test] & words)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{3,}", text.lower()))


def in_order(mutant: Mutant, known: Counter[str], said: Said) -> list[Test]:
    """First what has noticed other changes; then the fastest first, and those that speak of what is changed.

    Every further case of a test waits a little longer.
    """
    words = _words(f"{mutant.module} {mutant.function} {mutant.old} {mutant.new}")
    costs = {test.name: (test.seconds + 0.05) / (1 + said.relevance(test.name, words)) for test in mutant.tests}
    cases: Counter[str] = Counter()
    keys = {}
    for test in sorted(mutant.tests, key=lambda test: costs[test.name]):
        name = test.name.partition("[")[0]
        keys[test.name] = (not known[test.name], costs[test.name] * (1 + cases[name]), test.name)
        cases[name] += 1
    return sorted(mutant.tests, key=lambda test: keys[test.name])


def within(limit: float, tests: list[Test]) -> list[Test]:
    """As many of the tests as take `limit` seconds together, by their time under coverage; at least one."""
    ends = itertools.accumulate(test.seconds for test in tests)
    return [test for test, end in zip(tests, ends, strict=True) if end - test.seconds < limit]


def outcome_of(ended: Ended) -> Outcome:
    """What the end of a fork says about its change."""
    mutant = ended.work.name.mutant
    report = _report(ended.tree)
    last = json.loads(report.read_text()) if report.exists() else {"how": "import", "test": "", "words": ended.output}
    if ended.code == 0:
        return Outcome(mutant, "survived", seconds=ended.seconds)
    how = last["how"]
    if how == "time" and ended.code != -signal.SIGALRM:
        how = "died"  # it ended in the middle of a test, but not by its alarm
    return Outcome(mutant, how, last["test"], ended.seconds, last["words"] or ended.output)


def confirm(outcomes: list[Outcome], tree: Path, cover: Cover) -> list[str]:
    """The tests that noticed a change, once more without any: those that fail now too."""
    waiting = {outcome.by for outcome in outcomes if outcome.how in ("failed", "time", "died")} & cover.tests.keys()
    bad = []
    while waiting:
        tests = sorted((cover.tests[name] for name in waiting), key=lambda test: test.seconds)
        (ended,) = run_forked([Work("unchanged", functools.partial(run_tests, tests))], [tree])
        if ended.code == 0:
            break
        last = json.loads(_report(tree).read_text())
        bad.append(last["test"])
        waiting = {test.name for test in tests[last["ran"] + 1 :]}
    return bad
