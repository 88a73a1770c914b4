"""`hald bless`: enter changed code into the ledger once golden cases have shown that it computes the same numbers."""

import argparse
import contextlib
import functools
import importlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hald.code_digests import SOURCE, closure, code_digests, entry_modules, read_sources
from hald.errors import UserError, suggest
from hald.files import write_text
from hald.plan.ledger import code_name, keyed_parts, ledger_file, version_of, versions_of
from hald.source_changes import Code, Lines, unseen_changes

ROOT = SOURCE.parents[1]
GOLDENS = ROOT / "tests/goldens"
SHOWN = 12  # differences, and lines, of one stage that are printed


def add_parser(commands: Any) -> None:
    """Add `hald bless` to the command line."""
    parser = commands.add_parser(
        "bless",
        help="let changed code keep the keys of its stage, after its golden cases have shown the same numbers",
        description="In a git checkout: runs the golden cases of stages whose code has changed, and enters the code\n"
        "into their ledger (src/hald/ledger). Refused are other numbers, and changed lines that no golden case runs.",
        epilog="examples:\n"
        "  hald bless relabel method                  # method: all methods of synthesis\n"
        "  hald bless --all                           # every stage whose code has changed\n"
        "  hald bless --new-version relabel           # other numbers, on purpose: new keys for labels and below",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("stages", nargs="*", metavar="STAGE")
    parser.add_argument("--all", action="store_true", help="all stages whose code has changed")
    parser.add_argument("--new-version", nargs="+", default=[], metavar="STAGE", help="begin a new version of a stage")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    return bless(options.stages, options.all, options.new_version)


@dataclass(frozen=True)
class Goldens:
    """What the golden cases of a stage found."""

    cases: int
    wrong: list[str]
    lines: Lines  # that they ran


def bless(names: Sequence[str], everything: bool, new: Sequence[str]) -> int:
    """Bless the stages that are named, or all whose code has changed; 1 if one of them is refused."""
    _require_checkout()
    renewed, digests = _stages(new), code_digests()
    unknown = [stage for stage in keyed_parts() if version_of(stage, digests[stage]) is None]
    asked = [
        stage for stage in keyed_parts() if stage in {*_stages(names), *renewed} or (everything and stage in unknown)
    ]
    if not asked and not everything:
        raise UserError(f"say which stages to bless, or --all. Changed code: {', '.join(unknown) or 'none'}")
    waiting = [stage for stage in asked if stage in unknown or stage in renewed]
    for stage in asked:
        if stage not in waiting:
            print(f"{stage}: nothing to bless, the ledger has its code as {code_name(stage, digests[stage])}")
    if not asked:
        print("nothing to bless: the ledger has the code of every stage")
    new_to_it = [stage for stage in waiting if not versions_of(stage) and stage not in renewed]
    refused = {stage: f"It has no version yet. Begin one: {_new(stage)}" for stage in new_to_it}
    ready = [stage for stage in waiting if stage not in refused]
    found = run_goldens(ready) if ready else {}
    refused |= {stage: problem for stage in ready if (problem := _problem(stage, found[stage], stage in renewed))}
    for stage in waiting:
        if stage not in refused:
            version = _enter(stage, digests[stage], stage in renewed)
            print(f"{stage}: its code is now of version {version} ({found[stage].cases} golden cases as expected)")
    for stage, problem in refused.items():
        print(f"{stage}: refused. {problem}")
    return 1 if refused else 0


def _require_checkout() -> None:
    if not (GOLDENS / "cases.py").is_file() or not (ROOT / ".git").exists():
        raise UserError(f"`hald bless` needs a git checkout of hald with its tests; {SOURCE} is not in one")


def _stages(names: Sequence[str]) -> list[str]:
    """Stages by name; the first part of one stands for all that begin with it."""
    for name in names:
        if not any(stage == name or stage.startswith(f"{name}.") for stage in keyed_parts()):
            raise UserError(f"there is no stage '{name}' in the ledger. {suggest(name, keyed_parts())}")
    return [stage for stage in keyed_parts() if stage in names or stage.partition(".")[0] in names]


# ---- golden cases ----------------------------------------------------------------------------------------------------


def run_goldens(stages: Sequence[str]) -> dict[str, Goldens]:
    """Run the golden cases of some stages, each once and in a folder of its own, and note which lines they run."""
    cases = _cases()
    chosen = {name: parts for name, (parts, _) in cases.CASES.items() if {*parts} & {*stages}}
    wrong: dict[str, list[str]] = {}
    lines: dict[str, Lines] = {stage: set() for stage in stages}
    kept: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, _traced() as (context, ran):
        for name in chosen:
            bench = cases.Bench(Path(folder, name), kept, around=_around(context, name))
            bench.folder.mkdir()
            context(f"{name}|")
            wrong[name] = _differences(cases, name, bench)
        context("")
        for at, (module, line) in ran():
            name, _, of_job = at.partition("|")
            own = {*chosen.get(name, ())} & {*(of_job.split("+") if of_job else stages)}
            for stage in own & {*stages}:
                lines[stage].add((module, line))
    return {
        stage: Goldens(
            cases=sum(stage in parts for parts in chosen.values()),
            wrong=[text for name, parts in chosen.items() if stage in parts for text in wrong[name]],
            lines=lines[stage],
        )
        for stage in stages
    }


def _cases() -> Any:
    sys.path.insert(0, str(GOLDENS))
    import torch

    torch.set_num_threads(1)
    return importlib.import_module("cases")


def _differences(cases: Any, name: str, bench: Any) -> list[str]:
    """How what a case finds differs from what it should."""
    try:
        checks = cases.run(name, bench)
    except (Exception, SystemExit) as error:
        return [f"{name}: {type(error).__name__}: {error}"]
    return [f"{name}, {c.name}: {c.error():.3g} times what rounding may make" for c in checks if c.error() > 1]


@contextlib.contextmanager
def _traced() -> Iterator[Any]:
    """Note which lines of the package run in which context: a function that sets it, and one that gives all lines."""
    from coverage import Coverage

    tracer = Coverage(data_file=None, config_file=False, include=[f"{SOURCE}/*"], messages=False)

    def ran() -> Iterator[tuple[str, tuple[str, int]]]:
        tracer.stop()
        data = tracer.get_data()
        modules = {str(path): name for name, path in _paths().items()}
        for file in data.measured_files():
            for line, contexts in data.contexts_by_lineno(file).items():
                yield from ((at, (modules[file], line)) for at in contexts)

    tracer.start()
    try:
        yield tracer.switch_context, ran
    finally:
        tracer.stop()


def _paths() -> dict[str, Path]:
    """The file of every module."""
    return {name: ROOT / _path(name) for name in read_sources()}


def _path(module: str) -> Path:
    plain = Path("src", *module.split("."))
    return plain / "__init__.py" if (ROOT / plain).is_dir() else plain.with_suffix(".py")


def _around(context: Any, case: str) -> Any:
    """Lines that a job runs count for its own parts of the package alone."""

    @contextlib.contextmanager
    def around(job: Any, _: Path) -> Iterator[None]:
        context(f"{case}|{'+'.join(job.parts)}")
        try:
            yield
        finally:
            context(f"{case}|")

    return around


# ---- verdict ---------------------------------------------------------------------------------------------------------


def _problem(stage: str, found: Goldens, renewed: bool) -> str:
    """Why a stage cannot be blessed; empty if it can."""
    if not found.cases:
        return "It has no golden case; tests/goldens needs one"
    if found.wrong:
        return _listed("These numbers are not as expected:", found.wrong)
    if renewed:
        return ""
    before, sources = blessed(stage), read_sources()
    entries = entry_modules(sources)[stage]
    if before is None:
        return (
            "No commit has the code that was blessed last, so there is nothing to compare with. Commit the source with "
            f"its ledger before the next change, or begin a new version: {_new(stage)}"
        )
    old, new = Code(before.sources, before.modules[stage]), Code(sources, closure(entries, sources))
    unseen = [f"{_path(u.module)}:{u.line}: {u.text}" for u in unseen_changes(old, new, entries, found.lines)]
    if not unseen:
        return ""
    remedy = f"Write a golden case that does (tests/goldens), or begin a new version: {_new(stage)}"
    return _listed("No golden case of this stage runs these changes:", unseen) + f"\n  {remedy}"


def _new(stage: str) -> str:
    return f"hald bless --new-version {stage}"


def _listed(head: str, lines: Sequence[str]) -> str:
    more = [f"... and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return "\n    ".join([head, *lines[:SHOWN], *more])


def _enter(stage: str, digest: str, renewed: bool) -> int:
    """Write a digest into the newest version of a stage, or into a new one; the version."""
    versions = versions_of(stage)
    if renewed:
        versions.append({"version": len(versions) + 1, "digests": [digest]})
    else:
        versions[-1]["digests"].append(digest)
    entries = (
        f'  {{"version": {entry["version"]}, "digests": [\n'
        + ",\n".join(f'    "{known}"' for known in entry["digests"])
        + "\n  ]}"
        for entry in versions
    )
    write_text(ledger_file(stage), "[\n" + ",\n".join(entries) + "\n]\n")
    return len(versions)


# ---- history ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Commit:
    """The package at a commit, as its own code describes it."""

    sources: dict[str, str]
    digests: dict[str, str]
    modules: dict[str, list[str]]


def blessed(stage: str) -> Commit | None:
    """The last commit whose code behind a stage is the one that was blessed last; None if there is none.

    What was blessed and not committed is passed over: then an earlier code of the same version is compared with.
    """
    digests = versions_of(stage)[-1]["digests"]
    file = str(ledger_file(stage).relative_to(ROOT))
    for digest in reversed(digests):
        entered = _commits(f"-S{digest}", "--", file)  # with the source, if it was committed as it should be
        for name in dict.fromkeys([*entered, *(_commits("--", "src/hald") if entered else ())]):
            if (commit := _commit(name)).digests.get(stage) == digest:
                return commit
    return None


def _commits(*words: str) -> list[str]:
    return _git("log", "--format=%H", *words).decode().split()


@functools.cache
def _commit(name: str) -> Commit:
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(_git("archive", name, "src/hald"))) as archive:
            archive.extractall(folder, filter="data")
        source = Path(folder, "src")
        command = [sys.executable, "-m", "hald.code_digests"]
        done = subprocess.run(command, cwd=source, env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True)
        found = json.loads(done.stdout) if done.returncode == 0 and done.stdout else {"digests": {}, "modules": {}}
        return Commit(read_sources(source / "hald"), **found)


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True)
    if done.returncode:
        raise UserError(f"git {words[0]} failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
