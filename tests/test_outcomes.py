"""Analyses, their tables and figures: planned, computed on a kept student, drawn."""

import base64
import io
import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from conftest import TINY_DEMO, Training, copy_known, job_for, made_once, make, run_spec
from hald.analysis.kinds.landscape import compute as landscape
from hald.analysis.kinds.reference_consistency import compute as reference_consistency
from hald.analysis.kinds.theory import compute as theory
from hald.analysis.spec import AnalysisSpec, Subject
from hald.analysis.subjects import Lab
from hald.errors import UserError
from hald.evaluation.kept_students import student_file
from hald.evaluation.spec import Phase
from hald.evaluation.train import load_material, train
from hald.files import read_json, write_json
from hald.jobs.job import Job
from hald.jobs.signals import Interrupted, StopRequest
from hald.labels.store import LabelStore
from hald.networks.build import build_model
from hald.networks.weights import read_state
from hald.pipeline import Plan, make_plan
from hald.plain import to_dict
from hald.plan.graph import Graph, JobId
from hald.plan.stage import Need
from hald.report.figure import Material, write_figure
from hald.report.figures.accuracy_over_steps import lengths
from hald.report.figures.learning_curves import records
from hald.report.render import write_table
from hald.report.spec import Cell, FigureSpec, TableSpec

CPU = torch.device("cpu")

OUTCOMES: dict[str, Any] = {
    "analyses": {
        "crops": {"kind": "crop_consistency", "images": ["rded"], "ipc": [2], "slc": 4, "evaluations": ["hald"]},
        "teacher": {"kind": "teacher_consistency", "images": ["rded"], "ipc": [2], "slc": 4, "evaluations": ["hald"]},
        "lvsd": {"kind": "lvsd", "images": ["real"], "ipc": [2]},
        "gradients": {"kind": "gradients", "images": ["rded", "real"], "ipc": [2]},
    },
    "figures": {
        "gain": {"kind": "gain", "caption": "gain", "table": "main"},
        "drift": {"kind": "lvsd", "caption": "drift", "analyses": ["lvsd"]},
    },
}


def planned(folder: Path, **changes: Any) -> Plan:
    if not (folder / "config").exists():
        copy_known(folder / "config")
    content = yaml.safe_load(TINY_DEMO) | OUTCOMES
    content = content | {name: content.get(name, {}) | value for name, value in changes.items()}
    (folder / "config/experiments/tiny.yaml").write_text(yaml.safe_dump(content))
    return make_plan({"experiments": ["tiny"], "results": str(folder / "r"), "stores": str(folder / "s")}, folder)


def analysis_of(plan: Plan, kind: str) -> tuple[str, AnalysisSpec]:
    return next((key, spec) for key, spec in plan.analyses.items() if spec.kind == kind)


def test_an_analysis_names_the_students_it_looks_at(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    _, crops = analysis_of(plan, "crop_consistency")
    assert [(s.stage, s.place["stage"]) for s in crops.subjects] == [(0, "before_stage_B"), (1, "after_stage_B")]
    _, teacher = analysis_of(plan, "teacher_consistency")
    assert [(s.stage, s.place["evaluation"]) for s in teacher.subjects] == [(1, "hald_before_last_soft"), (2, "hald")]
    (run,) = {s.run for s in crops.subjects + teacher.subjects}
    assert plan.kept == {run: 1}
    assert plan.needed["evaluate", run] == 2  # the table's, of which one student is kept
    _, lvsd = analysis_of(plan, "lvsd")
    assert [plan.teachers[s.teacher or ""].arch for s in lvsd.subjects] == ["small/resnet10-w4"]


def test_a_kept_student_belongs_to_a_finished_run(tmp_path: Path) -> None:
    """Until the analysis that looks at it is there; then it may go."""
    plan = planned(tmp_path)
    (run,) = plan.kept
    need = Need("evaluate", run, 2)
    student = plan.folder("evaluate", run) / "students/seed-0/stage-2.safetensors"
    assert Graph(plan).missing(need) == {0, 1}
    for seed in range(2):
        write_json(plan.file("evaluate", run, seed), {"top1": 50.0})
    assert Graph(plan).missing(need) == {0}
    assert Graph(plan).job(JobId("evaluate", run, "00000-00001")).missing_units() == [0]
    student.parent.mkdir(parents=True)
    student.touch()
    assert Graph(plan).missing(need) == set()
    student.unlink()
    for key in plan.analyses:
        write_json(plan.file("analysis", key), {})
    assert planned(tmp_path).kept == {}
    assert Graph(planned(tmp_path)).missing(need) == set()


def test_what_an_analysis_waits_for(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    graph = Graph(plan)
    key, spec = analysis_of(plan, "crop_consistency")
    (run,) = plan.kept
    job, labels = JobId("analysis", key), spec.subjects[0].labels
    assert graph.wanted(job, "runs") == [f"{plan.folder('evaluate', run)}/done/00000-00001.json"]
    assert graph.wanted(job, "labels") == [f"{plan.folder('relabel', labels)}/done/00000-00001.json"]
    assert graph.wanted(job, "dataset") == plan.files("dataset", spec.dataset)
    key, spec = analysis_of(plan, "gradients")  # trains a student of its own: no run is asked for
    assert graph.wanted(JobId("analysis", key), "runs") == []
    again = Job.read(json.loads(json.dumps(graph.job(JobId("analysis", key)).plain())))
    assert again.plain() == json.loads(json.dumps(graph.job(JobId("analysis", key)).plain()))
    assert again.spec.subjects == spec.subjects


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"analyses": {"x": {"kind": "reference_consistency", "images": ["rded"], "ipc": [2]}}}, "needs `reference`"),
        ({"analyses": {"x": {"kind": "landscape", "images": ["rded"], "ipc": [2], "evaluations": ["hald"]}}}, "two"),
        ({"analyses": {"x": {"kind": "landscape", "images": ["rded"], "ipc": [2], "resolution": 4}}}, "odd"),
        (
            {
                "analyses": {
                    "x": {"kind": "crop_consistency", "images": ["rded"], "ipc": [2], "evaluations": ["soft_only"]}
                }
            },
            "none of its evaluations has a hard stage",
        ),
        ({"figures": {"x": {"kind": "gain", "caption": "c"}}}, "needs `table`"),
        ({"figures": {"x": {"kind": "gain", "caption": "c", "table": "mian"}}}, "Did you mean 'main'"),
        ({"figures": {"x": {"kind": "drift", "caption": "c", "analyses": ["nope"]}}}, "no analysis 'nope'"),
        (
            {"figures": {"x": {"kind": "gain", "caption": "c", "table": "main", "where": {"images": "sre2l"}}}},
            "no cell of table 'main'",
        ),
        ({"tables": {"x": {"caption": "c", "analysis": "lvs", "values": {"a": "b"}}}}, "Did you mean 'lvsd'"),
        (
            {"tables": {"x": {"caption": "c", "analysis": "lvsd", "rows": ["colour"], "values": {"a": "b"}}}},
            "shows 'colour'",
        ),
    ],
)
def test_outcomes_that_cannot_be_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        planned(tmp_path, **change)


def test_a_table_of_an_analysis_shows_its_numbers_beside_the_papers(tmp_path: Path) -> None:
    values = {"mean_tr_sigma_strong": "paper.mean_strong"}
    table = {"caption": "drift", "analysis": "lvsd", "rows": ["metric"], "columns": ["student"], "values": values}
    plan = planned(tmp_path, tables={"drift": table})
    (cell,) = plan.tables["drift"].cells
    assert (cell.row, cell.column, cell.value) == (("mean_tr_sigma_strong",), ("resnet10",), "paper.mean_strong")
    result = plan.file("analysis", cell.run)
    stem = tmp_path / "drift"
    write_table(plan.tables["drift"], {cell.run: result}, stem)
    assert "| mean_tr_sigma_strong | – |" in stem.with_suffix(".md").read_text()
    write_json(result, {"subjects": [{"paper": {"mean_strong": 0.0123456}}]})
    write_table(plan.tables["drift"], {cell.run: result}, stem)
    assert "| mean_tr_sigma_strong | 0.0123 |" in stem.with_suffix(".md").read_text()
    write_json(result, {"subjects": [{"paper": {"weak": 1.0}}]})
    with pytest.raises(UserError, match=r"no value 'paper.mean_strong': at 'mean_strong' there is weak"):
        write_table(plan.tables["drift"], {cell.run: result}, stem)


def test_figures_and_tables_are_made_again_when_their_sources_go(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    drift = JobId("figure", "drift")
    for file in plan.files("figure", "drift"):
        write_json(Path(file), plan.meaning("figure", "drift"))
    key, _ = analysis_of(plan, "lvsd")
    assert not Graph(plan).is_done(drift)
    assert Graph(plan).named(drift, "analyses") == [str(plan.file("analysis", key))]
    write_json(plan.file("analysis", key), {})
    assert Graph(plan).is_done(drift)
    with pytest.raises(UserError, match="there is no figure 'drifts' in this plan. Did you mean 'drift'"):
        plan.key("figure", "drifts")


@pytest.fixture(scope="module")
def kept(first_store: Path, digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of a student trained through three stages, with all of them kept."""

    def trained(folder: Path) -> None:
        Training(digits, first_store, folder).train(run_spec(), kept=1)

    return made_once(tmp_path_factory, "kept-students", trained) / "records"


Folders = dict[str, Path]


@pytest.fixture(scope="module")
def folders(kept: Path, first_store: Path, digits: Path, teacher: Path) -> Folders:
    """That student, and what it was made from, by key."""
    return {"d": digits, "l": first_store, "t": teacher, "r": kept}


@pytest.fixture
def own(kept: Path, first_store: Path, digits: Path, tmp_path: Path) -> Training:
    """A copy of that student and its record, for one test alone."""
    shutil.copytree(kept, tmp_path / "records")
    return Training(digits, first_store, tmp_path)


def test_students_are_kept_after_every_stage(kept: Path, store: Path, digits: Path, tmp_path: Path) -> None:
    folder = kept / "students/seed-0"
    assert [path.name for path in sorted(folder.iterdir())] == [f"stage-{n}.safetensors" for n in range(3)]
    # the student after the first stage is that of a training which ends there
    material = load_material(run_spec(), digits, store, CPU)
    with StopRequest() as stop:
        train(material, 0, tmp_path / "again", stop, tmp_path / "again")
    for stage in range(3):
        a, b = (read_state(student_file(place, stage)) for place in (folder, tmp_path / "again"))
        assert all(torch.equal(a[name], b[name]) for name in a)
    first, last = (read_state(student_file(folder, stage)) for stage in (0, 2))
    assert not torch.equal(first["fc.weight"], last["fc.weight"])


def test_a_record_without_its_student_is_trained_again(own: Training) -> None:
    record, student = (own.records / name for name in ("seed-0.json", "students/seed-0/stage-2.safetensors"))
    before, weights = record.read_bytes(), student.read_bytes()
    student.unlink()
    own.train(run_spec(), kept=1)
    assert (record.read_bytes(), student.read_bytes()) == (before, weights)


def test_a_student_trained_again_leaves_its_record_alone(own: Training) -> None:
    """The record may be of another machine, and tables were made from it."""
    record, student = (own.records / name for name in ("seed-0.json", "students/seed-0/stage-2.safetensors"))
    record.write_text('{"top1": 12.5, "adopted": "elsewhere"}')
    shutil.rmtree(own.records / "timings")
    student.unlink()
    own.train(run_spec(), kept=1)
    assert student.exists()
    assert record.read_text() == '{"top1": 12.5, "adopted": "elsewhere"}'
    assert not (own.records / "timings").exists()


def test_a_training_that_began_without_keeping_students_begins_again_to_keep_them_all(
    store: Path, digits: Path, tmp_path: Path
) -> None:
    stages = (Phase("soft", 1), Phase("hard", 1), Phase("soft", 1))
    material = load_material(run_spec(stages=stages), digits, store, CPU)
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Interrupted):
            train(material, 0, tmp_path / "partial", stop)  # stops after its first stage
    with StopRequest() as stop:
        train(material, 0, tmp_path / "partial", stop, tmp_path / "kept")
        train(material, 0, tmp_path / "whole", stop, tmp_path / "whole")
    for stage in range(3):
        a, b = (read_state(student_file(tmp_path / place, stage)) for place in ("kept", "whole"))
        assert all(torch.equal(a[name], b[name]) for name in a)


def spec_of(kind: str, subjects: list[Subject], **options: Any) -> AnalysisSpec:
    plain = {"samples": 3, "crops": 2, "epochs": 1, "resolution": 3, "seed": 0, "flip": 0.0, "central": 1.0}
    plain |= {"plane": "pca", "mean": (0.3,) * 3, "std": (0.3,) * 3}
    reference = subjects[0] if kind == "reference_consistency" else None
    return AnalysisSpec(kind, "d", tuple(subjects), reference, plain | options, 1)


def subject(stage: int = 2, **place: Any) -> Subject:
    names = {"dataset": "digits", "images": "real", "ipc": 2, "slc": 4, "student": "s", "evaluation": f"e{stage}"}
    return Subject(names | place, "l", "r", stage, "t")


def subject_pair(kind: str) -> tuple[list[Subject], dict[str, Any]]:
    """What every analysis is tried on: the student after two of its stages, and what it trains itself."""
    runs = {"gradients": run_spec(epochs=1), "updates": run_spec()}
    subjects = [subject(stage, images=name, student=f"s{stage}") for stage, name in ((1, "a"), (2, "b"))]
    return subjects, {"runs": [to_dict(runs[kind])] * 2} if kind in runs else {}


def analysed(kind: str, folders: Folders, folder: Path) -> Path:
    """The result of an analysis of that pair, computed in an empty folder."""
    subjects, options = subject_pair(kind)
    made = make(spec_of(kind, subjects, **options), folder / "found", folders, key="k", code="c")
    assert [path.name for path in folder.iterdir()] == ["found"]
    return made / "analysis.json"


@pytest.fixture
def found(kind: str, folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of a test's kind of analysis."""
    made = made_once(tmp_path_factory, f"analysis-{kind}", lambda f: analysed(kind, folders, f))
    return made / "found/analysis.json"


def label_variance(store: Path) -> float:
    """Unbiased variance of the two stored labels of an image, summed over classes: mean over images."""
    opened, p = LabelStore(store), np.zeros((2, 20, 10))
    for view, rows in enumerate(p):
        q, scale = (array[view].astype(np.float64) for array in opened.read(["q", "scale"], 2).values())
        e = np.exp(q * scale[:, None])
        rows[opened.drawn(view).image] = e / e.sum(axis=1, keepdims=True)
    return float(p.var(axis=0, ddof=1).sum(axis=1).mean())


def picture(text: str) -> np.ndarray:
    """A PNG that an analysis kept."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))


def shown(store: Path, found: dict[str, Any], number: int) -> np.ndarray:
    """The distilled image that is the n-th example."""
    return LabelStore(store).images()[found["examples"][number]["image"]].transpose(1, 2, 0)


# What must hold for the results of both subjects.
KINDS: dict[str, Callable[[dict[str, Any], dict[str, Any], Path], bool]] = {
    "lvsd": lambda a, b, _: all(0 <= one["varied"]["mean_weak"] < one["varied"]["mean_strong"] for one in (a, b)),
    "crop_consistency": lambda a, b, _: all(0 < one["same_image"]["cosine"] <= 1 for one in (a, b)),
    "reference_consistency": lambda a, b, _: (
        b["T0_5"]["cosine_percent"] < 99.99 < a["T0_5"]["cosine_percent"] == pytest.approx(100)  # the first is it
    ),
    "teacher_consistency": lambda a, b, _: all(0 < one["T1"]["js"] < np.log(2) for one in (a, b)),
    "gradients": lambda a, b, _: all(
        one["labels_per_image"] == 2
        and one["effective_labels_per_image"] == pytest.approx(2 / (1 - np.mean(one["cosine"]) ** 2))
        and one["mean"] == pytest.approx(np.mean(one["cosine"]))
        and len(one["cosine"]) == 3
        for one in (a, b)
    ),
    "updates": lambda a, b, _: all(len(one[name]) == 18 for one in (a, b) for name in ("size", "logits")),
    "landscape": lambda a, b, _: all(np.array(one["test"]["losses"]).shape == (3, 3) for one in (a, b)),
    "embedding": lambda a, b, _: all(len(one["points"]) == len(one["labels"]) for one in (a, b)),
    "theory": lambda a, b, store: all(
        one["variance"][0]["expected"] == pytest.approx(label_variance(store), rel=1e-5)
        and one["inversion"]["images"] + one["inversion"]["already_inverted"] == 20
        and one["deviation"][0]["measured"] > one["deviation"][0]["bound"] > 0
        for one in (a, b)
    ),
    "drift": lambda a, b, store: all(
        all(np.array_equal(picture(text), shown(store, one, i)) for i, text in enumerate(one["images"]))
        and [[picture(text).shape for text in row] for row in one["crops"]] == [[(32, 32, 3)] * 2] * 3
        for one in (a, b)
    ),
    "storage": lambda a, b, _: all(one["full_label_fp16_mb"] == 300 * 20 * 10 * 2 / 2**20 for one in (a, b)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_analysis_runs_on_a_real_student(
    kind: str, found: Path, folders: Folders, tmp_path: Path
) -> None:
    subjects = read_json(found)["subjects"]
    assert [entry["place"]["evaluation"] for entry in subjects] == ["e1", "e2"]
    assert KINDS[kind](*subjects, folders["l"])
    assert analysed(kind, folders, tmp_path).read_bytes() == found.read_bytes()


def test_a_teacher_is_fed_with_statistics_of_its_own(folders: Folders, teacher: Path, tmp_path: Path) -> None:
    """Not with those of the dataset, which students have."""
    other = Path(shutil.copytree(teacher, tmp_path / "teacher"))
    (other / "teacher.json").unlink()
    write_json(other / "teacher.json", read_json(teacher / "teacher.json") | {"mean": [0.1] * 3, "std": [0.2] * 3})
    lab = Lab(spec_of("teacher_consistency", [subject(2)]), folders | {"t": other}, CPU)
    assert (list(lab.teacher(subject(2)).mean), list(lab.teacher(subject(2)).std)) == ([0.1] * 3, [0.2] * 3)
    assert (lab.student(subject(2)).mean, lab.student(subject(2)).std) == ((0.3,) * 3, (0.3,) * 3)


def test_the_other_subject_of_a_pair_gives_a_landscape_its_direction(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four subjects are two pairs, whose networks are told apart by their places."""
    subjects = [subject(1 + i % 2, images=f"set{i // 2}") for i in range(4)]
    lab = Lab(spec_of("landscape", subjects), folders, CPU)
    pairs: list[str] = []

    def asked(one: Subject) -> SimpleNamespace:
        pairs.append(f"{one.place['images']}-{one.place['evaluation']}")
        return SimpleNamespace(model=None)

    monkeypatch.setattr(lab, "student", asked)
    monkeypatch.setattr(landscape, "make_plane", lambda *_: None)
    monkeypatch.setattr(landscape, "landscape", lambda *_: Phase("soft", 1))  # any dataclass
    for number in range(4):
        landscape.measure(lab, number)
    assert pairs == [
        *("set0-e1", "set0-e2", "set0-e2", "set0-e1"),
        *("set1-e1", "set1-e2", "set1-e2", "set1-e1"),
    ]


def test_laws_about_several_labels_of_an_image_need_several(folders: Folders) -> None:
    lab = Lab(spec_of("theory", [subject(2, slc=3)]), folders, CPU)
    with pytest.raises(UserError, match=r"SLC 3 at IPC 2 gives 1 for each, ask for slc: 4 or more"):
        theory.measure(lab, 0)


def test_a_student_agrees_with_itself(folders: Folders) -> None:
    spec = spec_of("reference_consistency", [subject(2), subject(1)])
    itself, other = (reference_consistency.measure(Lab(spec, folders, CPU), number) for number in range(2))
    assert itself["T1"]["cosine"] == pytest.approx(1.0)
    assert itself["T1"]["js"] == pytest.approx(0.0, abs=1e-9)
    assert other["T1"]["cosine"] < 0.9999


def test_a_killed_analysis_keeps_its_finished_subjects(folders: Folders, tmp_path: Path) -> None:
    spec = spec_of("crop_consistency", [subject(1), subject(2)])
    job = job_for(spec, tmp_path / "found", folders)
    write_json(job.partial / "0.json", {"same_image": {"cosine": 0.5}})  # an earlier attempt's
    job.run()
    first, second = read_json(tmp_path / "found/analysis.json")["subjects"]
    assert first["same_image"] == {"cosine": 0.5}
    assert 0 < second["same_image"]["cosine"] <= 1


# Kinds of figures, and the analysis that each shows.
DRAWN = {kind: kind for kind in ("lvsd", "gradients", "updates", "landscape", "embedding", "drift")}
DRAWN["variance"] = "theory"


@pytest.mark.parametrize(("shown", "kind"), DRAWN.items(), ids=DRAWN)
def test_figures_are_drawn_from_the_results_of_analyses(shown: str, kind: str, found: Path, tmp_path: Path) -> None:
    material = Material(FigureSpec("f", shown, "caption", None, ("key",)), {"key": found})
    files = write_figure(material, tmp_path / "figure")
    assert [path.suffix for path in files] == [".png", ".svg", ".pdf"]
    with Image.open(files[0]) as picture:
        assert picture.width > 300
        assert len(set(picture.convert("L").resize((64, 64)).tobytes())) > 5  # something is on it


def test_figures_are_drawn_from_tables(tmp_path: Path) -> None:
    cells, folders = [], {}
    for evaluation, top1 in (("soft_only", 20.0), ("hald", 30.0)):
        folders[evaluation] = tmp_path / evaluation
        record = {"top1": top1, "top5": 60.0, "label_bytes": 2**20, "slc_effective": 10}
        curve = [{"epoch": e, "stage": "soft", "loss": 1.0 / e, "top1": top1 * e / 2} for e in (1, 2)]
        spec = {"stages": [{"kind": "soft"}], "epochs": 2, "classes": 10, "ipc": 10, "batch": 16}
        more = {"curve": curve, "stage_starts": [0], "spec": spec}
        write_json(folders[evaluation] / "seed-0.json", record | more)
        place = {"images": "rded", "evaluation": evaluation, "slc": 10}
        cells.append(Cell(("rded",), (evaluation,), evaluation, None, place))
    table = TableSpec("t", "caption", ("images",), ("evaluation",), 1, tuple(cells))
    for kind in ("accuracy_over_slc", "accuracy_over_bytes", "accuracy_over_steps", "gain", "learning_curves"):
        material = Material(FigureSpec("f", kind, "caption", table, ()), folders)
        assert len(write_figure(material, tmp_path / kind)) == 3
    twice = TableSpec("t", "caption", ("images",), ("evaluation",), 1, (*cells, replace(cells[0], run="other")))
    with pytest.raises(UserError, match="two runs of 'soft_only'"):
        records(Material(FigureSpec("f", "learning_curves", "c", twice, ()), folders))


def test_a_training_in_several_lengths_is_one_line_over_steps(tmp_path: Path) -> None:
    cells, folders = [], {}
    for evaluation, epochs in (("hald", 3), ("hald_9", 9), ("hald_beta2_0.9", 3)):
        spec = {"epochs": epochs, "classes": 10, "ipc": 10, "batch": 16}
        found = {"top1": 20.0, "top5": 60.0, "label_bytes": 2**20, "slc_effective": 10, "spec": spec}
        folders[evaluation] = tmp_path / evaluation
        write_json(folders[evaluation] / "seed-0.json", found)
        place = {"images": "rded", "evaluation": evaluation, "slc": 10}
        cells.append(Cell((evaluation,), ("10",), evaluation, None, place))
    folders["not run"] = tmp_path / "not run"
    cells.append(replace(cells[0], run="not run"))
    table = TableSpec("t", "caption", ("evaluation",), ("slc",), 1, tuple(cells))
    material = Material(FigureSpec("f", "accuracy_over_steps", "caption", table, ()), folders)
    assert [(point["evaluation"], point["steps"]) for point in lengths(material)] == [
        ("hald", 21),
        ("hald", 63),
        ("hald_beta2_0.9", 21),
    ]


def test_a_kept_students_network_is_what_the_run_says(folders: Folders) -> None:
    probe = Lab(spec_of("embedding", [subject(2)]), folders, CPU).student(subject(2))
    state = read_state(student_file(folders["r"] / "students/seed-0", 2))
    assert torch.equal(probe.model.state_dict()["fc.weight"], state["fc.weight"])
    assert probe.model.state_dict().keys() == build_model(run_spec().arch, 10, 32).state_dict().keys()
