"""The `hald` command, as a user types it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, TINY_DEMO
from hald.cli import main


@pytest.fixture
def here(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with a small experiment and one store that it does not need."""
    folder = tmp_path / "project"
    (folder / "config/experiments").mkdir(parents=True)
    shutil.copy(ROOT / "config/datasets.yaml", folder / "config")
    (folder / "config/config.yaml").write_text("experiments: [tiny]\n")
    (folder / "config/experiments/tiny.yaml").write_text(TINY_DEMO)
    shutil.copytree(store, folder / "results/labels/digits/old_0123456789.zarr")
    monkeypatch.chdir(folder)
    return folder


STORE = "results/labels/digits/old_0123456789.zarr"


def test_help_has_examples_and_does_not_wait_for_torch() -> None:
    code = "import sys\nfrom hald.cli import main\ntry: main(['labels', '--help'])\n"
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


def test_export_and_import(here: Path, real_set: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", "export", STORE, "out"]) == 0
    assert main(["labels", "import", "out", "--images", str(real_set), "--to", "new.zarr"]) == 0
    assert "new.zarr: 2 views" in capsys.readouterr().out
    assert main(["labels", "verify", "new.zarr"]) == 0
    assert main(["labels", "export", STORE, "out"]) == 1
    assert "out is not empty" in capsys.readouterr().err
