"""Draw changes of the package evenly over its modules, try each against the tests that run it, and print the score."""

import argparse
import datetime
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from mutants.changes import KINDS, Candidate
from mutants.cover import make_cover
from mutants.draw import Mutant, Source, called_equivalent, draw, from_file, moves_a_number
from mutants.runner import copy_tree, warm_up
from mutants.trial import Outcome, confirm, mark, try_all

ROOT = Path(__file__).parents[2]
ALLOWED = 0.03  # share of the changes that may be called equivalent; more of them count as survivors


def main() -> int:
    """Parse, run, print, write."""
    options = _options()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mut-", ignore_cleanup_errors=True) as folder:
        trees = [copy_tree(options.project, Path(folder) / str(i)) for i in range(options.jobs)]
        source = Source(trees[0])
        for tree in trees:
            mark(tree)
        warm_up()
        cover = make_cover(trees, options.kept, options.tests == "fast")
        for name, words in sorted(cover.failed.items()):
            print(f"left out, it fails without a change: {name}\n    {words.strip().splitlines()[-1]}")
        if options.patch:
            drawn = [*from_file(options.patch, source, cover)]
        else:
            drawn = draw(source, cover, options.number, seed, options.modules, lambda item: _chosen(item, options))
            print(
                f"SEED={seed}: {len(drawn)} changes in {len({mutant.module for mutant in drawn})} modules", flush=True
            )
        if options.only:
            drawn = [part for mutant in drawn if (part := _with_tests(mutant, options.only)).tests]
        if options.list:
            print(*(f"{mutant}  # {mutant.kind}, {len(mutant.tests)} tests" for mutant in drawn), sep="\n")
            return 0
        equivalent = [] if options.patch else called_equivalent(drawn)
        kept = options.kept / f"outcomes-{_digest(trees[0], options)}.jsonl"
        outcomes = try_all([mutant for mutant in drawn if mutant not in equivalent], trees, options.limit, kept)
        unsure = confirm(outcomes, trees[0], cover)
    found = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "commit": _commit(options.project),
        "seed": None if options.patch else seed,
        "tests": options.tests,
        "limit": options.limit,
        "minutes": round((time.monotonic() - start) / 60, 1),
    }
    found |= summary(outcomes, equivalent)
    tell(found, outcomes, unsure)
    found |= {
        "survivors": [_entry(outcome) for outcome in outcomes if not outcome.killed],
        "equivalent": [str(mutant) for mutant in equivalent],
        "tests_that_fail_unchanged": sorted({*cover.failed, *unsure}),
        "killed": [_entry(outcome) for outcome in outcomes if outcome.killed],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"all of it: {options.out}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/mutants", description=__doc__)
    parser.add_argument("--number", type=int, default=300, help="changes to draw")
    parser.add_argument("--seed", type=int, help="what the draw depends on; without it a new one is taken and printed")
    parser.add_argument("--tests", choices=("fast", "all"), default="all", help="fast: without those marked slow")
    parser.add_argument("--limit", type=float, default=90, help="seconds of tests, at most, for one change")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--modules", default="*", help="only these modules, e.g. 'hald.train.*'")
    parser.add_argument(
        "--only", default="", help="only changes that these tests run, and no other tests: tests/goldens"
    )
    parser.add_argument("--operator", choices=KINDS, help="only changes of this kind")
    parser.add_argument("--constants", action="store_true", help="only numbers: a float by 1 %%, an int by one")
    parser.add_argument("--patch", type=Path, help="try the changes in this file, `path:line | old text | new text`")
    parser.add_argument("--list", action="store_true", help="print the changes and stop")
    parser.add_argument("--out", type=Path, default=ROOT / "results/mutants.json", help="where the result is written")
    parser.add_argument("--project", type=Path, default=ROOT, help="another copy of the project to try")
    parser.add_argument("--kept", type=Path, default=ROOT / "results/.mutants", help="where coverage is kept")
    return parser.parse_args()


def _digest(tree: Path, options: argparse.Namespace) -> str:
    """Of all that an outcome depends on: a run that was stopped goes on where it was."""
    digest = hashlib.sha256(f"{options.tests} {options.only} {options.limit}".encode())
    for part in ("src", "tests", "config", "workflow"):
        for path in sorted((tree / part).rglob("*")):
            if path.is_file() and path.suffix not in (".pyc", ".txt") and "mutants" not in path.parts:
                digest.update(str(path.relative_to(tree)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _with_tests(mutant: Mutant, start: str) -> Mutant:
    return replace(mutant, tests=tuple(test for test in mutant.tests if test.name.startswith(start)))


def _chosen(item: Candidate, options: argparse.Namespace) -> bool:
    return moves_a_number(item) if options.constants else options.operator in (None, item.kind)


def summary(outcomes: list[Outcome], equivalent: list[Mutant]) -> dict[str, Any]:
    """The score: of what is not called equivalent, the share that was noticed; in percent."""
    number = len(outcomes) + len(equivalent)
    excess = max(0, len(equivalent) - int(ALLOWED * number))
    killed = sum(outcome.killed for outcome in outcomes)
    slow = {test.name for outcome in outcomes for test in outcome.mutant.tests if test.slow}
    fast = sum(outcome.killed and outcome.by not in slow for outcome in outcomes)
    tried = max(1, len(outcomes) + excess)
    return {
        "changes": number,
        "modules": len({outcome.mutant.module for outcome in outcomes} | {mutant.module for mutant in equivalent}),
        "killed": killed,
        "survived": len(outcomes) - killed,
        "not_run_by_any_test": sum(not outcome.mutant.tests for outcome in outcomes),
        "called_equivalent": len(equivalent),
        "counted_as_survivors": excess,
        "score": round(100 * killed / tried, 1),
        "score_of_fast_tests": round(100 * fast / tried, 1),
        "how": dict(Counter(outcome.how for outcome in outcomes)),
    }


def tell(found: dict[str, Any], outcomes: list[Outcome], unsure: list[str]) -> None:
    """Print the result."""
    print(f"\n{found['date']}, commit {found['commit']}, seed {found['seed']}, tests: {found['tests']}")
    kinds = Counter(outcome.mutant.kind for outcome in outcomes)
    for kind in sorted(kinds):
        killed = sum(outcome.killed for outcome in outcomes if outcome.mutant.kind == kind)
        print(f"  {kind:<20} {killed:>4} of {kinds[kind]}")
    killers = Counter(outcome.by for outcome in outcomes if outcome.killed)
    print("noticed most often by")
    for name, count in killers.most_common(8):
        print(f"  {count:>4} {name or 'an import that failed'}")
    for outcome in outcomes:
        if outcome.how in ("time", "died"):
            print(f"counted as killed, because a test {_HOW[outcome.how]}: {outcome.by}\n    {outcome.mutant}")
    for name in unsure:
        print(f"UNSURE: {name} noticed a change, but now fails without one; what it noticed has to be tried again")
    share = 100 * found["called_equivalent"] / max(1, found["changes"])
    print(
        f"{found['changes']} changes in {found['modules']} modules, {found['minutes']} minutes: "
        f"{found['killed']} killed, {found['survived']} survived ({found['not_run_by_any_test']} run by no test), "
        f"{found['called_equivalent']} ({share:.1f} %) called equivalent\n"
        f"score {found['score']} %, by fast tests alone {found['score_of_fast_tests']} %"
    )


_HOW = {"time": "took longer than 60 s and ten times its own time", "died": "ended its process"}


def _entry(outcome: Outcome) -> dict[str, Any]:
    mutant = outcome.mutant
    entry = {"change": str(mutant), "function": mutant.function, "kind": mutant.kind, "tests": len(mutant.tests)}
    entry |= {"seconds": round(outcome.seconds, 1)}
    return entry | ({"how": outcome.how, "by": outcome.by, "words": outcome.words[-300:]} if outcome.killed else {})


def _commit(project: Path) -> str:
    """The commit of the project, with a plus where files differ from it."""

    def git(*command: str) -> str:
        done = subprocess.run(["git", "-C", str(project), *command], text=True, capture_output=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "tests", "config", "workflow")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


if __name__ == "__main__":
    sys.exit(main())
