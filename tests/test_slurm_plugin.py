"""Snakemake's Slurm plugin with a Slurm that is silent, or has forgotten jobs: its own functions, wrapped."""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hald.cluster.slurm_plugin import make_patient

LOGGER = logging.getLogger("snakemake-test")


class Plugin:
    """What the plugin has, under its names: answers to looks at the queue, and jobs that are waited for."""

    def __init__(self, answers: list[Any], ages: list[int | None]) -> None:
        class Executor:
            run_uuid = "this run"

            async def check_active_jobs(self, active_jobs: list[Any]) -> AsyncIterator[Any]:
                states, _ = await plugin.query_job_status("squeue --name run", LOGGER)
                for job in active_jobs:
                    if states.get(job.external_jobid, "RUNNING") == "RUNNING":
                        yield job
                    else:
                        plugin.reported[job.external_jobid] = states[job.external_jobid]

        async def ask(_command: str, _logger: Any) -> Any:
            return answers.pop(0)

        plugin = self
        self.Executor, self.query_job_status, self.reported = Executor, ask, dict[str, str]()
        self.get_min_job_age = lambda: ages.pop(0)
        self.is_query_tool_available = lambda tool: tool in ("squeue", "sacct")

    def check(self, jobs: list[Any]) -> list[str]:
        """Look at all jobs; the numbers of those that are still waited for."""

        async def left() -> list[str]:
            return [job.external_jobid async for job in self.Executor().check_active_jobs(jobs)]

        return asyncio.run(left())


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A plugin with given answers, made patient."""

    def make(answers: list[Any], ages: list[int | None] | None = None, patience: float = 0.0) -> Plugin:
        plugin = Plugin(answers, ages or [])
        monkeypatch.setitem(sys.modules, "snakemake_executor_plugin_slurm", plugin)
        make_patient(pause=0.0, patience=patience)
        make_patient(pause=0.0, patience=patience)  # a second time changes nothing
        return plugin

    return make


def job(number: str, *outputs: Path) -> Any:
    return SimpleNamespace(external_jobid=number, job=SimpleNamespace(output=[str(path) for path in outputs]))


def test_the_installed_plugin_has_what_is_wrapped() -> None:
    import snakemake_executor_plugin_slurm as installed

    assert callable(installed.query_job_status)
    assert callable(installed.get_min_job_age)
    assert callable(installed.is_query_tool_available)
    assert callable(installed.Executor.check_active_jobs)


def test_looks_begin_before_the_executor_has_named_its_run(patient: Any) -> None:
    """Snakemake starts the thread that looks before the plugin is set up; what fails in it ends it, for ever."""
    plugin = patient([({}, 0.1), ({"7": "RUNNING"}, 0.1)])
    del plugin.Executor.run_uuid
    assert plugin.check([]) == []
    plugin.Executor.run_uuid = "this run"
    assert plugin.check([job("7")]) == ["7"]


def test_a_silent_slurm_is_asked_again(patient: Any, caplog: pytest.LogCaptureFixture) -> None:
    plugin = patient([(None, None), (None, None), ({"7": "RUNNING"}, 0.1)], [300, None])
    with caplog.at_level(logging.WARNING):
        assert plugin.check([job("7")]) == ["7"]
    assert caplog.text.count("Slurm does not answer (`squeue` fails)") == 1
    assert [plugin.get_min_job_age(), plugin.get_min_job_age()] == [300, 300]


def test_a_state_may_have_more_words(patient: Any) -> None:
    plugin = patient([({"7": "CANCELLED by 1000", "8": "RUNNING"}, 0.1)])
    assert plugin.check([job("7"), job("8")]) == ["8"]
    assert plugin.reported == {"7": "CANCELLED"}


@pytest.mark.parametrize(
    ("queue", "there", "state"),
    [
        ({}, True, "COMPLETED"),  # it had ended before it was forgotten
        ({}, False, "FAILED"),  # so that Snakemake submits it again
        ({"7": "COMPLETED"}, False, "COMPLETED"),  # only the database does not know it yet
        ({"7": "RUNNING"}, False, None),
        (None, False, None),  # the queue cannot be asked: nothing is known
    ],
)
def test_what_became_of_a_job_that_is_not_named(
    queue: dict[str, str] | None,
    there: bool,
    state: str | None,
    patient: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    asked = []
    monkeypatch.setattr("hald.cluster.slurm_plugin.states_of_run", lambda name: asked.append(name) or queue)
    (tmp_path / "one").touch()
    if there:
        (tmp_path / "two").touch()
    plugin = patient([({"8": "RUNNING"}, 0.1)])
    left = plugin.check([job("7", tmp_path / "one", tmp_path / "two"), job("8")])
    assert plugin.reported == ({"7": state} if state else {})
    assert left == (["8"] if state else ["7", "8"])
    assert asked == ["this run"]  # a number alone may be another job's by now


@pytest.mark.parametrize("disabled", [True, False])
def test_sacct_is_there_where_there_is_accounting(
    disabled: bool, patient: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = "echo 'Slurm accounting storage is disabled' >&2; exit 1" if disabled else "exit 0"
    (tmp_path / "sacct").write_text(f"#!/bin/sh\n{answer}\n")
    (tmp_path / "sacct").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    plugin = patient([])
    assert plugin.is_query_tool_available("squeue")
    assert plugin.is_query_tool_available("sacct") != disabled


def test_a_job_may_be_missing_for_a_while(patient: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It was named again in between, so it has not been missing for long."""
    monkeypatch.setattr("hald.cluster.slurm_plugin.states_of_run", lambda _name: {})
    clock = iter([0.0, 50.0, 100.0, 150.0, 165.0])
    monkeypatch.setattr("hald.cluster.slurm_plugin.time", SimpleNamespace(monotonic=lambda: next(clock)))
    answers: list[dict[str, str]] = [{}, {"7": "RUNNING"}, {}, {}, {}]
    plugin = patient([(answer, 0.1) for answer in answers], patience=60.0)
    waited = [plugin.check([job("7", tmp_path / "none")]) for _ in range(5)]
    assert waited == [["7"], ["7"], ["7"], ["7"], []]
    assert plugin.reported == {"7": "FAILED"}


def test_defaults_for_squeue_cannot_hide_jobs(patient: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_PARTITION", "gpu")
    monkeypatch.setenv("SACCT_FORMAT", "JobID")
    patient([])
    assert not [name for name in os.environ if name.startswith(("SQUEUE_", "SACCT_"))]
