"""Keys and versions of code: what an edit changes, and what `hald bless` accepts and refuses."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from chain import make_chain
from hald.bless import _cases
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


def test_every_stage_has_a_golden_case() -> None:
    """A stage without one could never be blessed."""
    checked = {part for parts, _ in _cases().CASES.values() for part in parts}
    assert checked == set(STAGES)


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
