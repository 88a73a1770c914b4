"""What the workflow looks at in a profile, and how it waits for a Slurm that is silent."""

import asyncio
import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from hald.errors import UserError
from hald.profile import check_profile, check_warning
from hald.slurm import wait_out_silence

RULES = ["evaluate", "relabel", "squeeze"]


def test_resources_that_mean_nothing_are_refused() -> None:
    check_profile({"evaluate": {"mem_mb": 1, "gpu": 1, "licences": 2}}, RULES)
    with pytest.raises(UserError, match=r"rule 'evalaute', which does not exist. Did you mean 'evaluate'\?"):
        check_profile({"evalaute": {"mem_mb": 1}}, RULES)
    with pytest.raises(UserError, match=r"rule 'evaluate' the resource 'mem_bm'. Did you mean 'mem_mb'\?"):
        check_profile({"evaluate": {"mem_bm": 1}}, RULES)
    with pytest.raises(UserError, match=r"'slurm_partiton'. Did you mean 'slurm_partition'\?"):
        check_profile({"evaluate": {"slurm_partiton": "gpu"}}, RULES)


def test_a_warning_that_comes_at_once_is_refused() -> None:
    check_warning("evaluate", 60, "'--signal=USR1@300'")
    check_warning("evaluate", 4, None)
    check_warning("evaluate", None, "'--signal=USR1@300'")
    with pytest.raises(UserError, match=r"rule 'evaluate' has a time limit of 5 minutes and is warned 300 s before"):
        check_warning("evaluate", 5, "'--signal=B:USR1@300'")


def test_the_plugin_asks_a_silent_slurm_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own functions, by the names that the installed version has, wrapped: failures are waited out."""
    import snakemake_executor_plugin_slurm as installed

    answers: list[Any] = [(None, None), (None, None), ({"7": "RUNNING"}, 0.1)]
    ages = iter([300, None])

    async def ask(_command: str, _logger: Any) -> Any:
        return answers.pop(0)

    names = ("query_job_status", "get_min_job_age")
    assert all(callable(getattr(installed, name)) for name in names)
    plugin = SimpleNamespace(query_job_status=ask, get_min_job_age=lambda: next(ages))
    monkeypatch.setitem(sys.modules, "snakemake_executor_plugin_slurm", plugin)
    wait_out_silence(pause=0.0)
    wait_out_silence(pause=0.0)  # a second time changes nothing
    with caplog.at_level(logging.WARNING):
        found = asyncio.run(plugin.query_job_status("squeue --me", logging.getLogger("snakemake-test")))
    assert found == ({"7": "RUNNING"}, 0.1)
    assert caplog.text.count("Slurm does not answer (`squeue` fails)") == 1
    assert [plugin.get_min_job_age(), plugin.get_min_job_age()] == [300, 300]
