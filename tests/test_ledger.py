"""Keys and versions of code: what an edit changes, and what `hald bless` accepts and refuses."""

import ast
import json
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chain import make_chain
from conftest import ROOT, Project, copy_project
from hald.code_digests import code_digests, read_sources
from hald.plan import Plan, ledger
from hald.plan.ledger import LEDGER, STAGES, code_name, versions_of
from hald.specs.base import to_dict
from test_code_digests import STAGES as MODULES

A, B, C = "a" * 64, "b" * 64, "c" * 64


def test_the_name_of_code_is_its_newest_version_or_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "LEDGER", tmp_path)
    assert code_name("relabel", A) == f"relabel:{A}"
    versions = [{"version": 1, "digests": [A, B]}, {"version": 2, "digests": [B]}]
    (tmp_path / "relabel.json").write_text(json.dumps(versions))
    assert [code_name("relabel", digest) for digest in (A, B, C)] == ["relabel:1", "relabel:2", f"relabel:{C}"]


def test_every_stage_has_a_ledger() -> None:
    assert sorted(path.stem for path in LEDGER.iterdir()) == sorted(STAGES)
    for stage in STAGES:
        versions = versions_of(stage)
        assert [entry["version"] for entry in versions] == list(range(1, len(versions) + 1)) != []
        for entry in versions:
            assert entry.keys() == {"version", "digests"}
            assert len(set(entry["digests"])) == len(entry["digests"]) > 0
            assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in entry["digests"])


# ---- which keys an edit changes --------------------------------------------------------------------------------------

OPTIMISED = {"batch": 5, "recover": {"budgets": [2], "sizes": [8], "scale": [0.5, 1]}}
EXPERIMENT = {
    "dataset": "waves",
    "threads": 1,
    "epochs": 2,
    "teacher": "one",
    "teachers": {"one": {"arch": "small/resnet10-w4", "recipe": {"epochs": 1}}},
    "images": {
        "rded": {"method": "rded", "mipc": 9},
        "patches": {"method": "patches", "mipc": 9},
        "real": {"method": "real"},
        "sre2l": {"method": "sre2l", **OPTIMISED},
        "fadrm": {"method": "fadrm", **OPTIMISED},
        "lpld": {"method": "lpld", **OPTIMISED},
        "external": {"method": "external", "path": "elsewhere", "bn_mode": "running"},
    },
    "students": {"it": {"arch": "small/resnet10-w4"}},
    "labels": {"batch": 3},
    "evaluations": {"it": {"order": "soft", "lr": 0.1, "eta": 1}},
    "tables": {
        "all": {
            "caption": "all",
            "images": ["rded", "patches", "real", "sre2l", "fadrm", "lpld", "external"],
            "ipc": [1],
            "slc": [1],
            "students": ["it"],
            "evaluations": ["it"],
            "seeds": 1,
        }
    },
    "analyses": {"a": {"kind": "storage", "images": ["real"], "ipc": [1], "slc": 1}},
}
TABLES = ("datasets", "teachers", "rankings", "statistics", "units", "images", "labels", "runs", "analyses")


def planned(folder: Path) -> Plan:
    dataset = {"source": "imagefolder", "root": str(folder), "size": 8, "classes": 3}
    dataset |= {"mean": [0.5] * 3, "std": [0.2] * 3}
    return make_chain(folder, EXPERIMENT, {"waves": dataset}).plan


def stage_of(table: str, spec: Any) -> str:
    kinds = {"datasets": "dataset.imagefolder", "teachers": "squeeze", "rankings": "ranking", "labels": "relabel"}
    kinds |= {"runs": "evaluate", "analyses": "analysis", "statistics": "statistics"}
    method = {"units": "recover", "images": "synthesis"}
    return kinds.get(table) or f"{method[table]}.{spec.method}"


def changed_keys(before: Plan, after: Plan) -> set[str]:
    """Slugs of work whose key is another one now."""
    found = set()
    for table in TABLES:
        for a, b in zip(getattr(before, table), getattr(after, table), strict=True):
            found |= {before.slugs[a]} if a != b else set()
    return found


def below(plan: Plan, stages: frozenset[str]) -> set[str]:
    """Slugs of the work of some stages and of all that is made from it."""
    found: set[str] = set()
    for table in TABLES:  # in the order of the pipeline
        for key, spec in getattr(plan, table).items():
            made_from = json.dumps(to_dict(spec))
            if stage_of(table, spec) in stages or any(f'"{other}"' in made_from for other in found):
                found.add(key)
    return {plan.slugs[key] for key in found}


def with_other_arithmetic(source: str) -> str:
    """The source with the first value that a function gives or returns doubled."""
    tree = ast.parse(source)
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    inside = (node for function in functions for statement in function.body for node in ast.walk(statement))
    line = next(node for node in inside if isinstance(node, ast.Assign | ast.Return) and node.value)
    line.value = ast.BinOp(line.value, ast.Mult(), ast.Constant(2))
    return ast.unparse(ast.fix_missing_locations(tree))


@pytest.mark.parametrize(
    "module",
    [
        "hald.data.sources.imagefolder",
        "hald.data.sources.parquet",
        "hald.squeeze",
        "hald.synthesis.ranking",
        "hald.synthesis.statistics",
        "hald.synthesis.sre2l",
        "hald.synthesis.lpld",
        "hald.synthesis.fadrm",
        "hald.synthesis.collect",
        "hald.synthesis.rded",
        "hald.synthesis.patches",
        "hald.synthesis.real",
        "hald.synthesis.external",
        "hald.labels.relabel",
        "hald.train.run",
        "hald.analysis.theory",
        "hald.views",
        "hald.tables",
    ],
)
def test_an_edited_line_changes_the_keys_of_its_stages_and_of_those_below(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "LEDGER", tmp_path / "ledger")
    for stage, digest in code_digests().items():
        (tmp_path / "ledger").mkdir(exist_ok=True)
        (tmp_path / f"ledger/{stage}.json").write_text(json.dumps([{"version": 1, "digests": [digest]}]))
    before, sources = planned(tmp_path), read_sources()
    assert set(before.code.names.values()) == {f"{stage}:1" for stage in STAGES}
    sources[module] = with_other_arithmetic(sources[module])
    monkeypatch.setattr("hald.plan.code_digests", lambda: code_digests(sources))
    after = planned(tmp_path)
    assert changed_keys(before, after) == below(before, MODULES[module])
    names = {stage for stage in STAGES if after.code.names[stage] != f"{stage}:1"}
    assert names == MODULES[module] - {"tables", "figures"}


# ---- hald bless ------------------------------------------------------------------------------------------------------

FOLDERS = "src/hald/data/sources/imagefolder.py"
PREPARE = "src/hald/data/prepare.py"
DECODE = "src/hald/data/decode.py"


@dataclass(frozen=True)
class Checkout:
    """A git checkout of the project whose code is of version 1."""

    project: Project

    def git(self, *words: str) -> None:
        self.project.call(["git", "-c", "user.name=test", "-c", "user.email=test@localhost", *words])

    def edit(self, file: str, old: str, new: str) -> None:
        self.project.edit(file, old, new)

    def bless(self, *words: str) -> tuple[int, str]:
        """The command's exit code, and what it says."""
        done = self.project.call([sys.executable, "-m", "hald.cli", "bless", *words], check=False)
        return done.returncode, done.stdout

    def versions(self, stage: str) -> list[int]:
        """How many digests each version of a stage has."""
        file = self.project.folder / f"src/hald/ledger/{stage}.json"
        return [len(entry["digests"]) for entry in json.loads(file.read_text())]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    copy_project(tmp_path)
    ignored = shutil.ignore_patterns("__pycache__", "test_*.py")
    shutil.copytree(ROOT / "tests/goldens", tmp_path / "tests/goldens", ignore=ignored)
    for name in ("chain.py", "conftest.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    for stage, digest in code_digests().items():
        if stage in STAGES:
            file = tmp_path / f"src/hald/ledger/{stage}.json"
            file.write_text(json.dumps([{"version": 1, "digests": [digest]}]))
    known = Checkout(Project(tmp_path))
    known.git("init", "--quiet")
    known.git("add", "src", "tests")
    known.git("commit", "--quiet", "--message", "version 1")
    return known


@pytest.mark.slow
def test_other_words_for_the_same_are_blessed_and_keep_the_version(checkout: Checkout) -> None:
    """A variable is renamed, another one taken out, a guard and a comment added."""
    checkout.edit(
        FOLDERS, "classes = sorted(found[spec.train])", "names = found[spec.train]\n    classes = sorted(names)"
    )
    checkout.edit(FOLDERS, "    train, test = (", "    # in the order of classes\n    train, test = (")
    checkout.edit(
        PREPARE, "counts = np.bincount", "if not classes:\n        raise ValueError(spec)\n    counts = np.bincount"
    )
    checkout.edit(DECODE, "short = min(height, width)", "least = min(height, width)")
    checkout.edit(
        DECODE,
        "resize * width / short), int(resize * height / short)",
        "resize * width / least), int(resize * height / least)",
    )
    code, said = checkout.bless("dataset.imagefolder")
    assert (code, said) == (0, "dataset.imagefolder: its code is now of version 1 (2 golden cases as expected)\n")
    assert checkout.versions("dataset.imagefolder") == [2]
    assert checkout.versions("dataset.parquet") == [1]
    assert "dataset.imagefolder: nothing to bless" in checkout.bless("dataset.imagefolder")[1]
    # not committed yet: what comes next is compared with version 1 as it was committed
    checkout.edit(FOLDERS, "for path in image_files(", "for path in 1 * image_files(")
    assert checkout.bless("dataset.imagefolder")[0] == 0
    assert checkout.versions("dataset.imagefolder") == [3]


@pytest.mark.slow
def test_other_numbers_are_refused_unless_a_new_version_is_asked_for(checkout: Checkout) -> None:
    checkout.edit(DECODE, "(image.width - size) / 2", "(image.width - size) / 3")
    code, said = checkout.bless("dataset.imagefolder", "dataset.sklearn_digits")
    assert code == 1
    assert (
        "dataset.imagefolder: refused. 1 numbers are not as expected:\n    dataset_imagefolder_resized, images of t"
        in said
    )
    assert (
        "dataset.sklearn_digits: refused. No golden case of this stage runs these changes:\n    src/hald/data/dec"
        in said
    )
    assert (checkout.versions("dataset.imagefolder"), checkout.versions("dataset.sklearn_digits")) == ([1], [1])
    # the golden cases have to be right for a new version too; which lines they run does not matter then
    code, said = checkout.bless("--new-version", "dataset.imagefolder", "dataset.sklearn_digits")
    assert code == 1
    assert "dataset.sklearn_digits: its code is now of version 2" in said
    assert (checkout.versions("dataset.imagefolder"), checkout.versions("dataset.sklearn_digits")) == ([1], [1, 1])


@pytest.mark.slow
def test_changed_lines_that_no_golden_case_runs_are_refused(checkout: Checkout) -> None:
    checkout.edit(PREPARE, "labels >= 0", "labels > 0")
    checkout.edit(PREPARE, "END_MARKS = {", "END_MARKS = {**{}, ")
    code, said = checkout.bless("dataset.tiny_imagenet")
    assert code == 1
    lines = (checkout.project.folder / PREPARE).read_text().splitlines()
    for number, line in enumerate(lines, 1):
        if "labels > 0" in line or "END_MARKS = {" in line:
            assert f"    {PREPARE}:{number}: {line.strip()[:16]}" in said
    assert "hald bless --new-version dataset.tiny_imagenet" in said
    assert checkout.versions("dataset.tiny_imagenet") == [1]


@pytest.mark.slow
def test_the_first_blessing_asks_for_a_version_and_the_source_has_to_be_committed(checkout: Checkout) -> None:
    (checkout.project.folder / "src/hald/ledger/dataset.parquet.json").unlink()
    assert "It has no version yet. Begin one: hald bless --new-version dataset.parquet" in checkout.bless("--all")[1]
    assert checkout.bless("--new-version", "dataset.parquet")[0] == 0
    assert checkout.versions("dataset.parquet") == [1]
    ledger_file = checkout.project.folder / "src/hald/ledger/dataset.imagefolder.json"
    ledger_file.write_text(json.dumps([{"version": 1, "digests": [A]}]))
    assert "No commit has the code that was blessed last" in checkout.bless("dataset.imagefolder")[1]


def test_bless_needs_a_checkout_and_a_stage(tmp_path: Path) -> None:
    installed = Checkout(Project(tmp_path))
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    code, said = installed.bless("--all")
    assert (code, said.count("\n")) == (1, 1)
    assert (
        said == f"hald: `hald bless` needs a git checkout of hald with its tests; {tmp_path}/src/hald is not in one\n"
    )
    (tmp_path / "tests/goldens").mkdir(parents=True)
    (tmp_path / "tests/goldens/cases.py").touch()
    (tmp_path / ".git").mkdir()
    assert "hald: say which stages to bless, or --all. Changed code:" in installed.bless()[1]
    assert "hald: there is no stage 'relabl' in the ledger. Did you mean 'relabel'?" in installed.bless("relabl")[1]
