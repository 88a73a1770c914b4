"""Records as JSON Lines: out of results, and back into them."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from hald.cli.main import main
from hald.cli.records import machine, plans_of, records_in, records_out
from hald.errors import UserError
from hald.files import read_json, write_json
from hald.pipeline import Plan
from recorded import EXPERIMENT, finish, small_study, write_record

Plans = dict[str, Plan]
ELSEWHERE = {"day": "2026-01-31", "machine": "64 cores, another machine"}


@pytest.fixture
def plans(tmp_path: Path) -> Plans:
    plans = small_study(tmp_path)
    finish(plans[EXPERIMENT])
    return plans


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "records.jsonl"


def lines(file: Path, kind: str = "student") -> list[dict[str, Any]]:
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return [line for line in found if line["kind"] == kind]


def write(file: Path, found: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in found))


def results_of(plans: Plans) -> Path:
    return Path(plans[EXPERIMENT].results)


def test_a_line_says_what_it_is_and_holds_the_record(plans: Plans, file: Path) -> None:
    plan = plans[EXPERIMENT]
    assert records_out(plans, file) == f"{file}: 5 results written; 4 of 5 trainings are there"
    students = lines(file)
    evaluations = [line["places"][0]["evaluation"] for line in students]
    assert evaluations == ["hald", "hald", "soft_only", "soft_only"]
    assert [line["seed"] for line in students] == [0, 1, 0, 1]
    place = {"images": "rded", "ipc": 2, "slc": 4, "student": "resnet10", "evaluation": "hald", "dataset": "digits"}
    assert students[1]["places"] == [{"experiment": EXPERIMENT, **place}]
    assert (students[1]["day"], students[1]["machine"]) == (time.strftime("%Y-%m-%d"), machine())
    assert students[1]["record"] == read_json(plan.file("evaluate", plan.tables["main"].cells[1].run, 1))
    (teacher,) = lines(file, "teacher")
    assert teacher["places"] == [{"experiment": EXPERIMENT, "teacher": "resnet10"}]
    assert (teacher["record"]["top1"], teacher["floor"], teacher["settings"]["recipe"]["epochs"]) == (91.23, 85, 2)
    (work,) = lines(file, "work")
    assert work["places"] == [{"experiment": EXPERIMENT, "work": "evaluate small/resnet10-w4@32"}]
    assert work["record"] == {"hours": 2.0}  # four of half an hour


def test_the_same_results_are_the_same_bytes(plans: Plans, file: Path) -> None:
    records_out(plans, file)
    before = file.read_bytes()
    records_out(plans, file)
    assert file.read_bytes() == before
    write(file, list(reversed([json.loads(line) for line in before.splitlines()])))
    records_out(plans, file)
    assert file.read_bytes() == before


def test_a_study_goes_on_from_its_records(plans: Plans, file: Path) -> None:
    """They come back where they are missing and nowhere else, and keep where they were made, here or elsewhere."""
    records_out(plans, file)
    first, second, *others = [json.loads(line) for line in file.read_text().splitlines()]
    write(file, [first, second | ELSEWHERE, *others])
    results = results_of(plans)
    before = {path: read_json(path) for path in results.glob("runs/**/seed-*.json")}
    assert len(before) == 8
    kept = min(path for path in before if path.parent.name != "timings")
    for path in set(before) - {kept}:
        path.unlink()
    write_json(kept, before[kept] | {"top1": 1.5})  # is not touched
    assert records_in(plans, file) == f"{file}: 3 results put back; 4 of 5 trainings are there"
    after = {path: read_json(path) for path in before if path.exists()}
    assert after.pop(kept) == before.pop(kept) | {"top1": 1.5}
    timing = kept.parent / "timings" / kept.name
    assert before.pop(timing)
    assert timing not in after  # goes with its record
    made = [record.pop("made") for path, record in after.items() if path.parent.name != "timings"]
    assert after == before
    assert ELSEWHERE in made
    origins = sorted(line["machine"] for line in lines(file))
    kept.unlink()
    records_in(plans, file)
    shutil.rmtree(results / "teachers")
    again = file.with_name("again.jsonl")
    records_out(plans, again)
    assert again.read_bytes() == b"".join(
        json.dumps(line, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        for line in sorted(lines(file) + lines(file, "work"), key=lambda line: line["kind"])
    )
    assert sorted(line["machine"] for line in lines(again)) == origins


def test_what_others_wrote_stays_and_what_was_made_anew_takes_its_place(plans: Plans, file: Path) -> None:
    theirs = {"kind": "student", "seed": 0, "places": [{"experiment": "theirs"}], "record": {"key": "a", "top1": 5.0}}
    plan = plans[EXPERIMENT]
    records_out(plans, file)
    write(file, [theirs, *(line | ELSEWHERE for line in lines(file))])
    hald, soft = (cell.run for cell in reversed(plan.tables["main"].cells))
    write_record(plan, hald, 0, 77.0, code="d" * 64)
    plan.file("evaluate", soft, 1).unlink()
    records_out(plans, file)
    found = {(line["places"][0].get("evaluation"), line["seed"]): line for line in lines(file)}
    assert found[None, 0] == theirs
    assert {at: line["record"]["top1"] for at, line in found.items() if at[0]} == {
        ("hald", 0): 77.0,
        ("hald", 1): 42.0,
        ("soft_only", 0): 30.0,
        ("soft_only", 1): 32.0,  # is not among the results any more
    }
    assert found["hald", 0]["machine"] == machine()
    assert {found[at]["machine"] for at in found if at not in (("hald", 0), (None, 0))} == {ELSEWHERE["machine"]}


def test_a_student_of_two_experiments_has_one_line(tmp_path: Path, file: Path) -> None:
    """Also when they were written out one after the other; another record takes the places of its experiment alone."""
    both = small_study(tmp_path, "twin")
    finish(both[EXPERIMENT])
    for name, plan in both.items():
        records_out({name: plan}, file)
    assert len(lines(file)) == 4
    for line in lines(file):
        assert [place["experiment"] for place in line["places"]] == [EXPERIMENT, "studies/own/experiments/twin"]
    before = file.read_bytes()
    records_out(both, file)
    assert file.read_bytes() == before
    plan = both[EXPERIMENT]
    write_record(plan, plan.tables["main"].cells[1].run, 0, 77.0)
    records_out({EXPERIMENT: plan}, file)
    found = [(line["record"]["top1"], len(line["places"])) for line in lines(file)]
    assert sorted(found) == [(30.0, 2), (32.0, 2), (40.0, 1), (42.0, 2), (77.0, 1)]


def test_work_that_was_not_needed_again_still_counts(plans: Plans, file: Path) -> None:
    plan = plans[EXPERIMENT]
    (teacher,) = plan.teachers
    timing = plan.folder("squeeze", teacher) / "timings/1.json"
    write_json(timing, {"kind": "squeeze net@32 0123456789", "device": "cpu", "seconds": 1800.0, "work": 1.0})
    records_out(plans, file)
    before = lines(file, "work")
    assert [(line["places"][0]["work"], line["record"]["hours"]) for line in before] == [
        ("evaluate small/resnet10-w4@32", 2.0),
        ("squeeze net@32", 0.5),
    ]
    timing.unlink()
    for path in results_of(plans).glob("runs/*/*/timings/seed-1.json"):
        path.unlink()
    records_out(plans, file)
    assert lines(file, "work") == before


def test_records_of_other_settings_or_code_stay_out(plans: Plans, file: Path, tmp_path: Path) -> None:
    records_out(plans, file)
    shutil.rmtree(results_of(plans))
    raw = {"experiments": [EXPERIMENT], "results": str(tmp_path / "r"), "stores": str(tmp_path / "s")}
    override = {EXPERIMENT: {"evaluations": {"hald": {"hard_epochs": 2}}}}
    message = records_in(plans_of(raw | {"override": override}, tmp_path), file)
    assert message == (
        f"{file}: 2 results put back; 2 are of other settings or other code and stay out; 2 of 5 trainings are there"
    )


def test_what_is_refused(tmp_path: Path, file: Path) -> None:
    plans = small_study(tmp_path)
    with pytest.raises(UserError, match="no training of this config is finished in .*: there is nothing to write out"):
        records_out(plans, file)
    finish(plans[EXPERIMENT])
    records_out(plans, file)
    good = file.read_text()
    for bad in ("{}", "[]", "damaged", '{"kind": "student", "places": 3}', '{"kind": "student", "places": []}'):
        file.write_text(f"{good}{bad}\n")
        for refused in (records_out, records_in):
            with pytest.raises(UserError, match=f"{file.name}, line 7 is no result; `hald records out` makes a file"):
                refused(plans, file)


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    finish(small_study(tmp_path)[EXPERIMENT])
    (tmp_path / "config/config.yaml").write_text(f"experiments: [{EXPERIMENT}]\nresults: r\n")
    monkeypatch.chdir(tmp_path)
    assert main(["records", "out", "records.jsonl"]) == 0
    assert capsys.readouterr().out == "records.jsonl: 5 results written; 4 of 5 trainings are there\n"
    assert main(["records", "in", "records.jsonl", "--config", "results=other"]) == 0
    assert capsys.readouterr().out == "records.jsonl: 4 results put back; 4 of 5 trainings are there\n"
    assert main(["records", "in", "nothing.jsonl"]) == 1
    assert capsys.readouterr().err == "hald: No such file or directory: nothing.jsonl\n"
