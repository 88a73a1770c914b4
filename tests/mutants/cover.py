"""Which tests run which line: the suite once under coverage, a process per file, kept until its sources change."""

import functools
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mutants.places import Lines, Place, Uses
from mutants.runner import Work, options, run_forked, scratch_of

SUBPROCESSES = """[run]
data_file = {folder}/coverage
parallel = true
context = ${{MUTANTS_TEST}}
include = */src/hald/*
"""
# Tests whose outcome does not depend on one line of the package, or that need machines we do not have.
TRACERS = ("cover.py", "plugins.py")  # what is kept depends on these too
LEFT_OUT = ("tests/cluster/", "tests/mutants/", "tests/test_mutants.py")


@dataclass(frozen=True)
class Test:
    """A test of the suite: seconds of itself, and with the fixtures that it was the first to need."""

    name: str
    seconds: float
    whole: float
    slow: bool


@dataclass
class Cover:
    """The map from lines to tests."""

    tests: dict[str, Test] = field(default_factory=dict)
    lines: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    imports: dict[str, set[str]] = field(default_factory=dict)  # module: the tests of files that import it
    failed: dict[str, str] = field(default_factory=dict)  # tests that fail without any change

    def add(self, found: Mapping[str, Any]) -> None:
        """The map of one test file."""
        names = list(found["tests"])
        good = {name for name in names if name not in found["failed"] and not found["tests"][name]["skipped"]}
        self.failed |= found["failed"]
        for name in good:
            known = found["tests"][name]
            self.tests[name] = Test(name, known["seconds"], known["whole"], known["slow"])
        for module, lines in found["lines"].items():
            for line, numbers in lines.items():
                self.lines.setdefault((module, int(line)), set()).update(good & {names[i] for i in numbers})
        for module in found["imports"]:
            self.imports.setdefault(module, set()).update(good)

    def of(self, module: str, place: Place, uses: Uses) -> list[Test]:
        """The tests that run a place, the fastest first."""
        lines: Lines = uses.of(place.names) if place.names else {(module, line) for line in place.lines}
        names = {name for line in lines for name in self.lines.get(line, ())}
        if (place.names and not names) or (place.function == "<module>" and not place.names):
            names = self.imports.get(module, set())
        return sorted((self.tests[name] for name in names), key=lambda test: (test.seconds, test.name))


def make_cover(trees: list[Path], kept: Path, fast: bool) -> Cover:
    """The map of the suite (without slow tests: `fast`), from what is kept where nothing has changed."""
    cover, works = Cover(), []
    kept.mkdir(parents=True, exist_ok=True)
    common = _common(trees[0])
    for file in sorted(trees[0].glob("tests/**/test_*.py")):
        name = str(file.relative_to(trees[0]))
        if name.startswith(LEFT_OUT):
            continue
        for marks in ("not slow",) if fast else ("not slow", "slow"):
            digest = hashlib.sha256(f"{common} {name} {marks}".encode() + file.read_bytes()).hexdigest()[:16]
            target = kept / f"{digest}.json"
            if not target.exists():
                works.append(Work((name, marks, target), functools.partial(_trace, name, marks, target)))
            else:
                cover.add(json.loads(target.read_text()))
    for ended in run_forked(works, trees):
        name, marks, target = ended.work.name
        if ended.code or not target.exists():
            raise SystemExit(f"{name} ({marks}) could not be run under coverage ({ended.code}):\n{ended.output}")
        print(f"coverage of {name} ({marks}): {ended.seconds:.0f} s", flush=True)
        cover.add(json.loads(target.read_text()))
    return cover


def _common(tree: Path) -> str:
    """Digest of all that every test may read; test files count one by one."""
    digest = hashlib.sha256()
    for path in sorted(tree.rglob("*")):
        part = path.relative_to(tree).parts
        ours = part[0] in ("src", "config", "workflow", "profiles", "slurm", "tests", "Snakefile", "pyproject.toml")
        other = (
            path.name.startswith("test_")
            or path.suffix == ".pyc"
            or (part[1:2] == ("mutants",) and path.name not in TRACERS)
        )
        if ours and path.is_file() and not other:
            digest.update("/".join(part).encode() + path.read_bytes())
    return digest.hexdigest()


def _trace(file: str, marks: str, target: Path, tree: Path) -> int:
    """Run one test file under coverage, in a fork."""
    import coverage
    import pytest

    from mutants.plugins import Traced

    scratch = scratch_of(tree)
    (scratch / "sub").mkdir()
    (scratch / "coverage.rc").write_text(SUBPROCESSES.format(folder=scratch / "sub"))
    os.environ["COVERAGE_PROCESS_START"] = str(scratch / "coverage.rc")
    run = coverage.Coverage(str(scratch / "coverage"), config_file=False, source=[str(tree / "src/hald")])
    run.start()
    traced = Traced(run.switch_context)
    functools.lru_cache = traced.cached(functools.lru_cache, str(tree))  # type: ignore[assignment]
    code = int(pytest.main([str(tree / file), "-m", marks, *options(tree)], plugins=[traced]))
    run.stop()
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        return code
    lines: dict[str, dict[int, set[str]]] = {}
    inside = [*_read(run.get_data())]
    for path in scratch.glob("sub/coverage.*"):
        data = coverage.CoverageData(str(path))
        data.read()
        inside += _read(data)
    for module, line, contexts in inside:
        known = lines.setdefault(module, {}).setdefault(line, set())
        known |= {name for context in contexts for name in _tests(context, traced)}
    numbers = {name: i for i, name in enumerate(traced.tests)}
    found = {
        "tests": traced.tests,
        "failed": traced.failed,
        "imports": sorted({name for name in sys.modules if name.split(".")[0] == "hald"} | set(lines)),
        "lines": {
            module: {line: sorted(numbers[name] for name in names if name in numbers) for line, names in all_.items()}
            for module, all_ in lines.items()
        },
    }
    new = target.with_suffix(".new")
    new.write_text(json.dumps(found))
    new.replace(target)
    return 0


def _read(data: Any) -> Iterator[tuple[str, int, list[str]]]:
    for path in data.measured_files():
        module = module_of(path.rpartition("/src/")[2])
        for line, contexts in data.contexts_by_lineno(path).items():
            yield module, line, contexts


def module_of(path: str) -> str:
    """The module of a path below `src`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _tests(context: str, traced: Any) -> Iterable[str]:
    """The tests behind a context: a test, a fixture or cached function that tests use, or none: all of the file."""
    if not context:
        return traced.tests
    seen: set[str] = set()
    waiting = {context}
    while waiting:
        name = waiting.pop()
        if not name:
            return traced.tests
        seen.add(name)
        waiting |= traced.users.get(name, set()) - seen
    return seen & traced.tests.keys()
