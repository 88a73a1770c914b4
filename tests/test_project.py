"""The project's own files: pins, profiles, generated documents, sizes, the README's commands."""

import re
import time
from pathlib import Path

import pytest
import yaml

import conftest
from conftest import ROOT, Project
from hald.cli.main import main
from hald.config.document import document, json_schema


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {name.lower(): version for name, version in (line.split("==") for line in lines if "==" in line)}


def test_conda_environments_have_the_tested_pins() -> None:
    for file in (ROOT / "envs").glob("*.yaml"):
        dependencies = yaml.safe_load(file.read_text())["dependencies"]
        packages = next(entry["pip"] for entry in dependencies if isinstance(entry, dict))
        for package in packages:
            name, version = package.split("==")
            assert pins()[name.lower()] == version, f"{file.name}: {package}"


def test_every_dependency_is_pinned() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    names = re.findall(r'^    "([A-Za-z0-9_-]+)(?:[<>=].*)?",$', text, re.M)
    assert len(names) > 20
    assert [name for name in names if name.lower() not in pins() and name.lower() not in ("setuptools",)] == []


def test_profiles_do_not_share_keys() -> None:
    """A key of profiles/default would silently win over the same key of slurm/."""
    default, slurm = (yaml.safe_load((ROOT / p / "config.yaml").read_text()) for p in ("profiles/default", "slurm"))
    assert set(default) & set(slurm) == set()


def test_schema_and_document_are_in_step_with_the_dataclasses() -> None:
    assert yaml.safe_load((ROOT / "workflow/schemas/config.schema.yaml").read_text()) == json_schema()
    assert (ROOT / "config/README.md").read_text() == document()


def test_every_key_is_described_and_closed() -> None:
    schema = json_schema()
    for definition in [schema, *schema["$defs"].values()]:
        assert definition["additionalProperties"] is False
        for name, prop in definition["properties"].items():
            assert prop["description"], name
            assert name in definition["required"] or "default" in prop, name


def test_docs_check_notices_a_stale_file(tmp_path: Path, monkeypatch, capsys) -> None:  # noqa: ANN001
    monkeypatch.chdir(tmp_path)
    assert main(["docs"]) == 0
    assert main(["docs", "--check"]) == 0
    (tmp_path / "config/README.md").write_text("old")
    assert main(["docs", "--check"]) == 1
    assert "run `make docs`" in capsys.readouterr().err


def test_scripts_are_thin_and_snakefile_is_a_table_of_contents() -> None:
    assert len((ROOT / "Snakefile").read_text().splitlines()) <= 80
    assert len((ROOT / "workflow/Snakefile").read_text().splitlines()) == 1
    for script in (ROOT / "workflow/scripts").glob("*.py"):
        assert len(script.read_text().splitlines()) <= 40, script.name
        assert "config" not in script.read_text()
        assert "wildcards" not in script.read_text()


def test_every_rule_has_a_log() -> None:
    for file in (ROOT / "workflow/rules").glob("*.smk"):
        rules = re.split(r"^rule ", file.read_text(), flags=re.M)[1:]
        assert all("    log:\n" in rule for rule in rules), file.name


def test_the_slurm_profile_knows_every_rule_that_is_submitted() -> None:
    text = "".join(file.read_text() for file in (ROOT / "workflow/rules").glob("*.smk"))
    local = {name for block in re.findall(r"localrules:\n((?: +\w+,\n)+)", text) for name in re.findall(r"\w+", block)}
    profile = yaml.safe_load((ROOT / "slurm/config.yaml").read_text())
    assert set(re.findall(r"^rule (\w+):", text, re.M)) - local == set(profile["set-resources"])


def test_readme_commands_are_make_targets() -> None:
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    used = set(re.findall(r"(?:^|`)make ([a-z-]+)", readme, re.M))
    assert {"demo", "test"} <= used <= targets


def test_a_call_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that it started, and the end of what it said is shown."""
    monkeypatch.setattr(conftest, "CALL_SECONDS", 0.3)
    start = time.monotonic()
    with pytest.raises(pytest.fail.Exception, match=r"not done after 0.3 s: bash -c .*\nat work"):
        Project(tmp_path).call(["bash", "-c", "echo at work; sleep 60 & sleep 60"])
    assert time.monotonic() - start < 30
