"""Keys and versions of code: what an edit changes, and what `hald bless` accepts and refuses."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chain import make_chain
from conftest import ROOT, Project, copy_project
from hald.code_digests import PLUGINS, code_digests, read_sources
from hald.pipeline import Plan
from hald.plain import to_dict
from hald.plan import ledger
from hald.plan.ledger import LEDGER, code_name, is_keyed, keyed_parts, versions_of
from test_code_digests import changed_stages, imports

A, B, C = "a" * 64, "b" * 64, "c" * 64


def test_the_name_of_code_is_its_newest_version_or_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "LEDGER", tmp_path)
    assert code_name("relabel", A) == f"relabel:{A}"
    versions = [{"version": 1, "digests": [A, B]}, {"version": 2, "digests": [B]}]
    (tmp_path / "relabel.json").write_text(json.dumps(versions))
    assert [code_name("relabel", digest) for digest in (A, B, C)] == ["relabel:1", "relabel:2", f"relabel:{C}"]


def test_every_stage_has_a_ledger() -> None:
    assert sorted(path.stem for path in LEDGER.iterdir()) == sorted(keyed_parts())
    for stage in keyed_parts():
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
        "halves": {"method": "real", "codec": "f16"},
    },
    "students": {"it": {"arch": "small/resnet10-w4"}},
    "labels": {"batch": 3},
    "evaluations": {
        "it": {"order": "soft", "lr": 0.1, "eta": 1},
        "hard": {"order": "hard"},
        "both": {"order": "soft-hard", "loss": "joint"},
        "cosine": {"loss": "gift"},
        "annealed": {"loss": "lpqld"},
        "adaptive": {"order": {"name": "adaptive", "window": 1, "shortest": 2}, "epochs": 6},
    },
    "tables": {
        "all": {
            "caption": "all",
            "images": ["rded", "patches", "real", "sre2l", "fadrm", "lpld", "external"],
            "ipc": [1],
            "slc": [1],
            "students": ["it"],
            "evaluations": ["it"],
            "seeds": 1,
        },
        "more": {
            "caption": "more",
            "images": ["real", "halves"],
            "ipc": [2],
            "slc": [2],
            "students": ["it"],
            "evaluations": ["hard", "both", "cosine", "annealed", "adaptive"],
            "seeds": 1,
        },
    },
    "analyses": {
        "a": {"kind": "storage", "images": ["real"], "ipc": [1], "slc": 1},
        "trained": {"kind": "updates", "images": ["real"], "ipc": [2], "slc": 2, "evaluations": ["both"]},
    },
}
TABLES = ("datasets", "teachers", "rankings", "statistics", "units", "images", "labels", "runs", "analyses")


def planned(folder: Path) -> Plan:
    dataset = {"source": "imagefolder", "root": str(folder), "size": 8, "classes": 3}
    dataset |= {"mean": [0.5] * 3, "std": [0.2] * 3}
    return make_chain(folder, EXPERIMENT, {"waves": dataset}).plan


def parts_of(table: str, spec: Any) -> set[str]:
    """The parts of the package behind a piece of work."""
    if table == "labels":
        return {"relabel", f"codec.{spec.codec}"}
    if table == "runs":
        return training_parts(to_dict(spec))
    if table == "analyses":
        own = [training_parts(run) for run in spec.options["runs"]] if spec.kind == "updates" else []
        return {f"analysis.{spec.kind}"}.union(*own)
    kinds = {"datasets": "dataset.imagefolder", "teachers": "squeeze", "rankings": "ranking"}
    kinds |= {"statistics": "statistics"}
    optimised = table == "images" and spec.method in ("sre2l", "lpld", "fadrm")
    return {kinds.get(table) or ("from_units" if optimised else f"method.{spec.method}")}


def training_parts(run: dict[str, Any]) -> set[str]:
    """Its own code's, the loss, if there is a soft stage, and the schedule of a training."""
    loss = {f"loss.{run['loss']['name']}"} if "soft" in {stage["kind"] for stage in run["stages"]} else set()
    return {"evaluate"} | loss | {"schedule.adaptive" if run["adaptive"] else "schedule.fixed"}


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
            if stages & parts_of(table, spec) or any(f'"{other}"' in made_from for other in found):
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
        "hald.datasets.sources.imagefolder",
        "hald.datasets.sources.parquet",
        "hald.squeeze.train",
        "hald.synthesis.ranking",
        "hald.synthesis.class_statistics",
        "hald.synthesis.methods.sre2l.compute",
        "hald.synthesis.methods.lpld.compute",
        "hald.synthesis.methods.fadrm.compute",
        "hald.synthesis.from_units",
        "hald.synthesis.methods.rded.compute",
        "hald.synthesis.methods.patches.compute",
        "hald.synthesis.methods.real.compute",
        "hald.synthesis.methods.external.compute",
        "hald.labels.relabel",
        "hald.labels.codecs.u8",
        "hald.labels.codecs.f16",
        "hald.labels.codecs.topk",
        "hald.evaluation.train",
        "hald.evaluation.losses.kl",
        "hald.evaluation.losses.joint",
        "hald.evaluation.losses.lpqld",
        "hald.evaluation.schedules.fixed",
        "hald.evaluation.schedules.adaptive",
        "hald.analysis.kinds.storage.compute",
        "hald.analysis.kinds.theory.compute",
        "hald.analysis.run",
        "hald.numerics.views",
        "hald.report.render",
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
    assert set(before.code.names.values()) == {f"{part}:1" for part in keyed_parts()}
    sources[module] = with_other_arithmetic(sources[module])
    monkeypatch.setattr("hald.pipeline.code_digests", lambda: code_digests(sources))
    after = planned(tmp_path)
    behind = changed_stages(imports() | {module: f"{imports()[module]}\nADDED = 1\n"}, imports())
    assert changed_keys(before, after) == below(before, frozenset(behind))
    names = {part for part in keyed_parts() if after.code.names[part] != f"{part}:1"}
    assert names == {part for part in behind if is_keyed(part)}


# what is planned here uses each of these, but for the codec topk
USERS = {
    "hald.labels.codecs.f16": {"labels": 1, "runs": 5, "analyses": 0},
    "hald.evaluation.losses.joint": {"labels": 0, "runs": 2, "analyses": 1},
    "hald.evaluation.losses.kl": {"labels": 0, "runs": 9, "analyses": 0},
    "hald.evaluation.schedules.adaptive": {"labels": 0, "runs": 2, "analyses": 0},
    "hald.labels.codecs.topk": {"labels": 0, "runs": 0, "analyses": 0},
}


@pytest.mark.parametrize("module", USERS)
def test_an_edited_plug_in_changes_the_keys_of_what_uses_it(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, sources = planned(tmp_path), read_sources()
    sources[module] += "\nADDED = 1\n"
    monkeypatch.setattr("hald.pipeline.code_digests", lambda: code_digests(sources))
    after = planned(tmp_path)
    kept = {table: getattr(before, table).keys() & getattr(after, table).keys() for table in TABLES}
    changed = {table: len(getattr(before, table)) - len(kept[table]) for table in TABLES}
    assert {table: number for table, number in changed.items() if number} == {
        table: number for table, number in USERS[module].items() if number
    }


@pytest.mark.parametrize("folder", [PLUGINS[kind][0] for kind in ("codec", "loss", "schedule")])
def test_an_added_plug_in_changes_no_key(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = planned(tmp_path)
    sources = read_sources() | {f"{folder}.added": "ADDED = 1\n"}
    monkeypatch.setattr("hald.pipeline.code_digests", lambda: code_digests(sources))
    after = planned(tmp_path)
    assert [name for name in after.code.digests if name not in before.code.digests] == [
        f"{kind}.added" for kind, (of, _) in PLUGINS.items() if of == folder
    ]
    assert changed_keys(before, after) == set()


def test_an_edited_network_changes_the_keys_of_what_has_it_and_of_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, sources = planned(tmp_path), read_sources()
    for module, everything in (("hald.networks.small.densenet", False), ("hald.networks.small.resnet", True)):
        edited = sources | {module: f"{sources[module]}\nADDED = 1\n"}
        monkeypatch.setattr("hald.pipeline.code_digests", lambda edited=edited: code_digests(edited))
        after = planned(tmp_path)
        assert {before.slugs[key] for key in before.teachers} <= changed_keys(before, after) or not everything
        assert changed_keys(before, after) == (below(before, frozenset({"squeeze"})) if everything else set())


# ---- hald bless ------------------------------------------------------------------------------------------------------

FOLDERS = "src/hald/datasets/sources/imagefolder.py"
PREPARE = "src/hald/datasets/prepare.py"
DECODE = "src/hald/datasets/decode.py"


@dataclass(frozen=True)
class Checkout:
    """A git checkout of the project whose code is of version 1."""

    project: Project
    forks: "subprocess.Popen[str]"

    def git(self, *words: str) -> None:
        self.project.call(["git", "-c", "user.name=test", "-c", "user.email=test@localhost", *words])

    def edit(self, file: str, old: str, new: str) -> None:
        self.project.edit(file, old, new)

    def bless(self, *words: str, case: str | None = None) -> tuple[int, str]:
        """The command's exit code, and what it says; `case`: where that is the only golden case."""
        assert self.forks.stdin
        assert self.forks.stdout
        print(json.dumps({"folder": str(self.project.folder), "words": words, "case": case}), file=self.forks.stdin)
        self.forks.stdin.flush()
        code, said = json.loads(self.forks.stdout.readline())
        return code, said

    def versions(self, stage: str) -> list[int]:
        """How many digests each version of a stage has."""
        file = self.project.folder / f"src/hald/ledger/{stage}.json"
        return [len(entry["digests"]) for entry in json.loads(file.read_text())]


@pytest.fixture(scope="module")
def forks() -> Iterator["subprocess.Popen[str]"]:
    """What runs `hald bless` in copies of the project."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, str(ROOT / "tests/forked.py")], **pipes) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def checkout(tmp_path: Path, forks: "subprocess.Popen[str]") -> Checkout:
    copy_project(tmp_path)
    ignored = shutil.ignore_patterns("__pycache__", "test_*.py")
    shutil.copytree(ROOT / "tests/goldens", tmp_path / "tests/goldens", ignore=ignored)
    for name in ("chain.py", "conftest.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    for stage, digest in code_digests().items():
        if stage in keyed_parts():
            file = tmp_path / f"src/hald/ledger/{stage}.json"
            file.write_text(json.dumps([{"version": 1, "digests": [digest]}]))
    known = Checkout(Project(tmp_path), forks)
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
    other, not_run = "These numbers are not as expected:", "No golden case of this stage runs these changes:"
    assert f"dataset.imagefolder: refused. {other}\n    dataset_imagefolder_resized, images of test: inf times" in said
    assert f"dataset.sklearn_digits: refused. {not_run}\n    {DECODE}:" in said
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
    assert checkout.bless("--all") == (0, "nothing to bless: the ledger has the code of every stage\n")
    (checkout.project.folder / "src/hald/ledger/dataset.parquet.json").unlink()
    assert "It has no version yet. Begin one: hald bless --new-version dataset.parquet" in checkout.bless("--all")[1]
    assert checkout.bless("--new-version", "dataset.parquet")[0] == 0
    assert checkout.versions("dataset.parquet") == [1]
    ledger_file = checkout.project.folder / "src/hald/ledger/dataset.imagefolder.json"
    ledger_file.write_text(json.dumps([{"version": 1, "digests": [A]}]))
    assert "No commit has the code that was blessed last" in checkout.bless("dataset.imagefolder")[1]


@pytest.mark.slow
def test_bless_needs_a_checkout_and_a_stage(tmp_path: Path, forks: "subprocess.Popen[str]") -> None:
    installed = Checkout(Project(tmp_path), forks)
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


# For every module in which a golden case sees one: a constant, another value, the case, and a stage that it is of.
CONSTANTS = {
    "hald.analysis.consistency": (
        "math.log(2)",
        "math.log(3)",
        "analysis_crop_consistency",
        "analysis.crop_consistency",
    ),
    "hald.analysis.kinds.crop_consistency.compute": (
        "turn = 0",
        "turn = 1",
        "analysis_crop_consistency",
        "analysis.crop_consistency",
    ),
    "hald.analysis.kinds.storage.compute": (
        "len(views),",
        "len(views) + 1,",
        "analysis_storage",
        "analysis.storage",
    ),
    "hald.analysis.random_crops": ("CROP_WIDTH + 1 :]", "CROP_WIDTH + 2 :]", "analysis_lvsd", "analysis.lvsd"),
    "hald.analysis.kinds.drift.compute": ("True)[1]", "True)[2]", "analysis_drift", "analysis.drift"),
    "hald.analysis.kinds.embedding.compute": (") < 2 or", ") < 3 or", "analysis_embedding", "analysis.embedding"),
    "hald.analysis.kinds.gradients.compute": (" lr=1e-3", " lr=0.0015", "analysis_gradients", "analysis.gradients"),
    "hald.analysis.color_jitter": ("range(4):", "range(5):", "analysis_lvsd", "analysis.lvsd"),
    "hald.analysis.kinds.lvsd.compute": ("= 100 * drift", "= 101 * drift", "analysis_lvsd", "analysis.lvsd"),
    "hald.analysis.subjects": ("teacher(0)", "teacher(1)", "analysis_gradients", "analysis.gradients"),
    "hald.analysis.kinds.landscape.compute": (
        "-1, 1, resolution",
        "-1, 2, resolution",
        "analysis_landscape",
        "analysis.landscape",
    ),
    "hald.analysis.variance": ("correction=1)", "correction=0)", "analysis_lvsd", "analysis.lvsd"),
    "hald.analysis.frozen_network": (
        "range(0, len",
        "range(1, len",
        "analysis_crop_consistency",
        "analysis.crop_consistency",
    ),
    "hald.analysis.labels_by_image": ("range(0, count", "range(1, count", "analysis_theory", "analysis.theory"),
    "hald.analysis.kinds.theory.compute": (
        "scatter(1, labels",
        "scatter(2, labels",
        "analysis_theory",
        "analysis.theory",
    ),
    "hald.analysis.kinds.updates.compute": (
        "kept.sum(dim=1, keepdim",
        "kept.sum(dim=2, keepdim",
        "analysis_updates",
        "analysis.updates",
    ),
    "hald.numerics.checkpoint": ("integers(2**63", "integers(3**63", "squeeze_sgd", "squeeze"),
    "hald.datasets.training_crops": ("transpose(2, 0", "transpose(3, 0", "ranking_of_encoded_images", "ranking"),
    "hald.datasets.decode": ("shape[:2]", "shape[:3]", "dataset_torchvision", "dataset.torchvision"),
    "hald.datasets.prepare": ("labels), 3, spec", "labels), 4, spec", "dataset_torchvision", "dataset.torchvision"),
    "hald.datasets.reader": (" != 1:", " != 2:", "squeeze_sgd", "squeeze"),
    "hald.datasets.sources.torchvision": ("in (True", "in (False", "dataset_torchvision", "dataset.torchvision"),
    "hald.datasets.sources.sklearn_digits": (
        "targets) - 500",
        "targets) - 501",
        "dataset_sklearn_digits",
        "dataset.sklearn_digits",
    ),
    "hald.datasets.sources.parquet": ("names[1]:", "names[2]:", "dataset_parquet_resized", "dataset.parquet"),
    "hald.datasets.sources.tiny_imagenet": (
        "row[1] for",
        "row[2] for",
        "dataset_tiny_imagenet",
        "dataset.tiny_imagenet",
    ),
    "hald.numerics.random_streams": ("digest()[:8], ", "digest()[:9], ", "squeeze_sgd", "squeeze"),
    "hald.labels.affine": ("/ scale).astype", "/ scale + 1).astype", "steps_u8", "codec.u8"),
    "hald.labels.codecs.f16": ("axis=1", "axis=0", "codec_f16", "codec.f16"),
    "hald.labels.codecs.i16": ("1 / 80", "1 / 81", "codec_i16", "codec.i16"),
    "hald.labels.codecs.topk": ("values[:, :1]", "values[:, 1:]", "codec_topk", "codec.topk"),
    "hald.labels.codecs.u2": ("steps=3", "steps=4", "steps_u2", "codec.u2"),
    "hald.labels.codecs.u4": ("steps=15", "steps=14", "steps_u4", "codec.u4"),
    "hald.labels.codecs.u8": ("steps=208", "steps=207", "steps_u8", "codec.u8"),
    "hald.labels.half_precision": ("* 2.0**-11", "* 2.0**-10", "codec_topk", "codec.topk"),
    "hald.labels.layout": ("batches, 4), ", "batches, 5), ", "steps_u2", "relabel"),
    "hald.labels.relabel": ("range(0, whole", "range(1, whole", "views_mixup", "relabel"),
    "hald.labels.store": ("] > 0, lam", "] > 1, lam", "analysis_drift", "analysis.drift"),
    "hald.numerics.accuracy": ("zeros(2, dtype", "zeros(3, dtype", "squeeze_sgd", "squeeze"),
    "hald.networks.batch_statistics": ("bias, True", "bias, False", "two_teachers_batch", "relabel"),
    "hald.plain": ("fitting[0], value", "fitting[1], value", "training_hard", "evaluate"),
    "hald.evaluation.spec": ("classes, 2)", "classes, 3)", "training_hard_soft", "evaluate"),
    "hald.squeeze.train": ("return 0.5 *", "return 0.75 *", "squeeze_sgd", "squeeze"),
    "hald.synthesis.image_set_writer": ("shape=(count, 3, size", "shape=(count, 4, size", "real", "method.real"),
    "hald.synthesis.methods.external.compute": (
        "transpose(0, 3",
        "transpose(1, 3",
        "external_sorted",
        "method.external",
    ),
    "hald.synthesis.methods.fadrm.compute": ("sizes[0])", "sizes[1])", "optimised_fadrm", "method.fadrm"),
    "hald.synthesis.class_folders": (
        "range(classes)) -",
        "range(1 + classes)) -",
        "external_numbered",
        "method.external",
    ),
    "hald.synthesis.image_set": ("label + 1) *", "label + 2) *", "real", "method.real"),
    "hald.synthesis.optimiser.crops_and_rolls": (
        "per_image else 1",
        "per_image else 2",
        "optimised_sre2l_patches",
        "method.sre2l",
    ),
    "hald.synthesis.methods.lpld.compute": ("images, 3, spec", "images, 4, spec", "optimised_lpld", "method.lpld"),
    "hald.synthesis.optimiser.bn_matching": ("view(1, -1", "view(2, -1", "optimised_sre2l_per_image", "method.sre2l"),
    "hald.synthesis.mosaics": (
        "new_zeros(ipc, 3, size",
        "new_zeros(ipc, 4, size",
        "chosen_patches_hard",
        "method.patches",
    ),
    "hald.synthesis.optimiser.loop": (
        "problem.start, 0",
        "problem.start, 1",
        "optimised_sre2l_per_image",
        "method.sre2l",
    ),
    "hald.synthesis.ranking": ("-1]) // 2", "-1]) // 3", "ranking_two", "ranking"),
    "hald.synthesis.methods.rded.compute": (
        "factor**2, spec",
        "factor**3, spec",
        "chosen_rded_mosaic",
        "method.rded",
    ),
    "hald.synthesis.methods.real.compute": ("transpose(0, 3", "transpose(1, 3", "real", "method.real"),
    "hald.synthesis.optimiser.teachers": (
        "shape = (1, -1",
        "shape = (2, -1",
        "optimised_sre2l_per_image",
        "method.sre2l",
    ),
    "hald.synthesis.methods.sre2l.compute": (
        "labels), 3, spec",
        "labels), 4, spec",
        "optimised_sre2l_per_image",
        "method.sre2l",
    ),
    "hald.synthesis.class_statistics": (
        " spec.seed, 0, count)",
        " spec.seed, 1, count)",
        "statistics_ema",
        "statistics",
    ),
    "hald.evaluation.class_labels": ("(1 - share)", "(2 - share)", "training_joint", "loss.joint"),
    "hald.evaluation.cross_entropy": (
        "classes * (1 - smoothing)",
        "classes * (2 - smoothing)",
        "training_hard",
        "evaluate",
    ),
    "hald.evaluation.divergence": ("F.softmax(teacher, dim=1", "F.softmax(teacher, dim=0", "training_soft", "loss.kl"),
    "hald.evaluation.hard_batches": ("range(0, count", "range(1, count", "training_hard", "evaluate"),
    "hald.evaluation.hard_temperature": ("= 1.0, 100", "= 1.5, 100", "training_matched", "evaluate"),
    "hald.evaluation.losses.gift": ("rest = 0.1", "rest = 0.2", "training_gift", "loss.gift"),
    "hald.evaluation.losses.joint": ("1]), self", "0]), self", "training_joint", "loss.joint"),
    "hald.evaluation.losses.lpqld": ("epoch + 1)", "epoch + 2)", "training_lpqld", "loss.lpqld"),
    "hald.evaluation.rendering": ("range(0, len", "range(1, len", "training_hard", "evaluate"),
    "hald.evaluation.soft_pool": ("stage << 32", "stage << 33", "analysis_updates", "analysis.updates"),
    "hald.evaluation.train": ("ignore_errors=True", "ignore_errors=False", "training_hard", "evaluate"),
    "hald.evaluation.phases": ("in starts) - 1", "in starts) - 2", "training_joint", "evaluate"),
    "hald.evaluation.schedules.adaptive": ("number == 2", "number == 1", "training_adaptive", "schedule.adaptive"),
    "hald.evaluation.schedules.fixed": ("[0, *iter", "[1, *iter", "training_hard_soft", "schedule.fixed"),
    "hald.evaluation.student": ("betas=(0.9", "betas=(1.35", "training_hard", "evaluate"),
    "hald.networks.sre2l": ("Conv2d(3, width", "Conv2d(4, width", "network_sre2l_resnet18", "network.sre2l"),
    "hald.networks.small.resnet": ("convs) - 1", "convs) - 2", "network_small_resnet10-w4", "network.resnet"),
    "hald.networks.small.mobilenet_v2": (
        "32, 3)], 32",
        "32, 3)], 33",
        "network_small_mobilenet_v2",
        "network.mobilenet_v2",
    ),
    "hald.numerics.views": ("4), 2, 0", "4), 3, 0", "squeeze_adam", "squeeze"),
}


@pytest.mark.slow
def test_one_changed_constant_in_any_module_is_refused(checkout: Checkout) -> None:
    """The golden case that sees it is enough, so the others are left out here."""
    assert not accepted(checkout, CONSTANTS)


def accepted(checkout: Checkout, constants: dict[str, tuple[str, str, str, str]]) -> list[tuple[str, str, int, str]]:
    """The changes, of one constant each, that `hald bless` lets pass."""
    folder = checkout.project.folder
    subprocess.run([sys.executable, "-m", "compileall", "-q", folder / "src", folder / "tests"], check=True)
    passed = []
    for module, (old, new, case, stage) in constants.items():
        file = folder / "src" / f"{module.replace('.', '/')}.py"
        text, times = file.read_text(), file.stat()
        assert text.count(old) == 1, (module, old)
        file.write_text(text.replace(old, new))
        code, said = checkout.bless(stage, case=case)
        if code != 1 or f"{stage}: refused." not in said or "not as expected" not in said:
            passed.append((module, new, code, said))
        file.write_text(text)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    return passed
