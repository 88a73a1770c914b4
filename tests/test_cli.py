"""The `hald` command, as a user types it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import zarr

from conftest import TINY_DEMO, copy_known
from hald.cli.main import main
from hald.files import write_json
from hald.pipeline import make_plan


@pytest.fixture
def here(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with a small experiment and one store that it does not need."""
    folder = tmp_path / "project"
    copy_known(folder / "config")
    (folder / "config/config.yaml").write_text("experiments: [tiny]\n")
    (folder / "config/experiments/tiny.yaml").write_text(TINY_DEMO)
    shutil.copytree(store, folder / "results/labels/digits/old_0123456789.zarr")
    monkeypatch.chdir(folder)
    return folder


STORE = "results/labels/digits/old_0123456789.zarr"


def test_help_has_examples_and_does_not_wait_for_torch() -> None:
    code = "import sys\nfrom hald.cli.main import main\ntry: main(['labels', '--help'])\n"
    code += "except SystemExit: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "hald labels verify --deep 2 STORE.zarr" in done.stdout
    assert done.stdout.endswith("False\n")


def test_plan(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan"]) == 0
    out = capsys.readouterr().out
    assert "training runs          5        0        5   no timing yet" in out
    assert main(["plan", "--config", "override={tiny: {tables: {main: {seeds: 4}}}}"]) == 0
    assert "training runs          9" in capsys.readouterr().out


def test_runs_are_done_begun_or_missing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = make_plan()
    first, second, _ = plan.runs
    for seed, top1 in enumerate((40.0, 50.0)):
        write_json(plan.file("evaluate", first, seed), {"top1": top1})
        write_json(plan.folder("evaluate", first) / f"timings/seed-{seed}.json", {"seconds": 75.0})
    write_json(plan.partial(second) / "seed-0/checkpoint.json", {"epoch": 2})
    write_json(Path("results/runs/digits/other_0000000000/seed-3.json"), {"top1": 12.5})
    assert main(["runs", "ls"]) == 0
    out = capsys.readouterr().out
    assert "  40.00  1m 15s  done" in out
    assert "begun, epoch 2/4" in out
    assert out.count("missing") == 2
    assert out.endswith("5 trainings: 2 done, 3 to do\n")
    assert main(["runs", "ls", "--means", "--state", "done"]) == 0
    assert "2/2   45.00 ± 7.07" in capsys.readouterr().out
    assert main(["runs", "ls", "--all"]) == 0
    assert "digits/other_0000000000" in capsys.readouterr().out


def test_places_that_cannot_be_written_and_damage_get_one_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", "export", STORE, "/proc/nowhere"]) == 1
    assert capsys.readouterr().err.startswith("hald: No such file or directory: /proc/")
    (here / STORE / "q/c/1/0/0").write_bytes(b"x" * 100)
    assert main(["labels", "export", STORE, "out"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("hald: ")
    assert error.count("\n") == 1
    assert not Path("out").exists()
    assert main(["images", "import", "x", "--dataset", "results", "--ipc", "0", "--to", "new.zarr"]) == 1
    assert "take one image of each class" in capsys.readouterr().err


def test_mistakes_get_one_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--config", "experiments"]) == 1
    assert (
        capsys.readouterr().err
        == "hald: --config takes KEY=VALUE, found 'experiments'; e.g. --config 'experiments=[demo]'\n"
    )
    for pair in (
        "override={tiny: {evaluations: {hald: {lr: .nan}}}}",
        "override={tiny: {evaluations: {hald: {hard_epochs: {a: 3}}}}}",
    ):
        assert main(["plan", "--config", pair]) == 1
        assert "Traceback" not in capsys.readouterr().err
    assert main(["plan", "--config", "datasets=5"]) == 1
    assert main(["labels", "info", "nowhere.zarr"]) == 1
    assert "there is no label store at nowhere.zarr" in capsys.readouterr().err
    os.chdir("/")
    assert main(["plan"]) == 1
    assert "run from the project's root folder" in capsys.readouterr().err


def test_ls_info_and_verify(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", "ls"]) == 0
    assert "digits/old_0123456789.zarr" in capsys.readouterr().out
    assert main(["labels", "info", STORE]) == 0
    out = capsys.readouterr().out
    assert "2 whole, up to number 1" in out
    assert "40 (SLC 4)" in out
    assert main(["labels", "verify", "--deep", "1"]) == 0
    assert "all as they should be" in capsys.readouterr().out
    (here / STORE / "q/c/0/0/0").write_bytes(b"x")
    assert main(["labels", "verify"]) == 1
    assert "array q view 0" in capsys.readouterr().out
    (here / STORE / "views/00001.json").unlink()
    assert main(["labels", "verify"]) == 1
    assert "view 1: has data but no marker, so it is not used; run Snakemake again" in capsys.readouterr().out


def test_export_and_import(here: Path, real_set: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", "export", STORE, "out"]) == 0
    assert main(["labels", "import", "out", "--images", str(real_set), "--to", "new.zarr"]) == 0
    assert "new.zarr: 2 views" in capsys.readouterr().out
    assert main(["labels", "verify", "new.zarr"]) == 0
    assert main(["labels", "export", STORE, "out"]) == 1
    assert "out is not empty" in capsys.readouterr().err


def test_import_with_a_codec(here: Path, real_set: Path) -> None:
    assert main(["labels", "export", STORE, "out"]) == 0
    for codec in ("i16", "u8"):
        options = [] if codec == "i16" else ["--codec", codec]
        assert main(["labels", "import", "out", "--images", str(real_set), "--to", f"{codec}.zarr", *options]) == 0
        store = zarr.open_group(f"{codec}.zarr", mode="r")
        assert (store.attrs["codec"], str(store["q"].dtype)) == (codec, {"i16": "int16", "u8": "uint8"}[codec])


def test_finished_tables_are_listed_and_what_each_costs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["plan", "--tables"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:1] for line in lines if line[:1] in (["main"], ["other"])] == [["main"], ["other"]]


def test_import_from_a_folder_of_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", "export", STORE, "out"]) == 0
    command = ["labels", "import", "out", "--images", "out/images", "--to", "new.zarr"]
    assert main(command) == 0  # the export left the class list
    assert "new.zarr: 2 views" in capsys.readouterr().out
    (here / "out/classes.txt").rename(here / "names.txt")
    shutil.rmtree("new.zarr")
    assert main(command) == 1
    assert "which do not name classes; give the class list with --classes FILE" in capsys.readouterr().err
    assert main([*command, "--classes", "names.txt"]) == 0
    assert main(["labels", "verify", "new.zarr"]) == 0
    shutil.rmtree("out/images/new004")
    shutil.rmtree("new.zarr")
    capsys.readouterr()
    assert main([*command, "--classes", "names.txt"]) == 1
    assert "there is no folder for class 4 ('4')" in capsys.readouterr().err


def test_an_imported_store_says_what_is_known_and_is_not_checked_deeply(
    here: Path, real_set: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["labels", "export", STORE, "out"])
    main(["labels", "import", "out", "--images", str(real_set), "--to", "new.zarr"])
    capsys.readouterr()
    assert main(["labels", "info", "new.zarr"]) == 0
    lines = {line[:15].strip(): line[15:] for line in capsys.readouterr().out.splitlines()}
    assert lines["key"] == "none (imported)"
    assert lines["imported"].startswith(f"labels from {here / 'out'}, images from {real_set}, by ")
    assert lines["crops"].startswith(
        "scale, ratio, flip probability and seed unknown (imported); stored crops cover 0."
    )
    assert lines["teachers"].startswith("unknown (imported)")
    assert lines["BN statistics"] == "unknown (imported)"
    assert main(["labels", "verify", "--deep", "2", "new.zarr", STORE]) == 0
    out = capsys.readouterr().out
    assert "new.zarr: no deep check, because it was imported without its teacher; its hashes were checked" in out
    assert out.count("no deep check") == 1
    next(here.glob("new.zarr/q/c/0/0/0")).write_bytes(b"x")
    assert main(["labels", "verify", "new.zarr"]) == 1
    assert "instead of" in (out := capsys.readouterr().out)
    assert out.count("; import the labels again, into a new store") == 1
    (here / "new.zarr/box/c/1/0/0").write_bytes(b"x")
    assert main(["labels", "verify", "--deep", "2", "new.zarr"]) == 1


@pytest.mark.parametrize("number", ["0", "-1", "two", "1.5"])
def test_a_deep_check_of_no_views_is_refused(number: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["labels", "verify", "--deep", number, STORE])
    assert stopped.value.code == 2
    assert f"found '{number}', expected the number of views to label again, 1 or more" in capsys.readouterr().err
