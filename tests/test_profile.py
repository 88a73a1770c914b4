"""What the workflow looks at in a profile."""

import pytest

from hald.cluster.profile_check import check_profile, check_reruns, check_warning
from hald.errors import UserError

RULES = ["evaluate", "relabel", "squeeze"]


def test_resources_that_mean_nothing_are_refused() -> None:
    check_profile(["mem_mb", "weather"], {"evaluate": {"mem_mb": 1, "gpu": 1, "licences": 2}}, RULES)
    with pytest.raises(UserError, match=r"rule 'evalaute', which does not exist. Did you mean 'evaluate'\?"):
        check_profile([], {"evalaute": {"mem_mb": 1}}, RULES)
    with pytest.raises(UserError, match=r"rule 'evaluate' the resource 'mem_bm'. Did you mean 'mem_mb'\?"):
        check_profile([], {"evaluate": {"mem_bm": 1}}, RULES)
    with pytest.raises(UserError, match=r"'slurm_partiton'. Did you mean 'slurm_partition'\?"):
        check_profile([], {"evaluate": {"slurm_partiton": "gpu"}}, RULES)


def test_defaults_are_looked_at_too() -> None:
    with pytest.raises(UserError, match=r"every rule the resource 'partition'. Did you mean 'slurm_partition'\?"):
        check_profile(["mem_mb", "partition"], {}, RULES)


def test_settings_under_which_finished_work_is_made_again_are_refused() -> None:
    check_reruns(["mtime"], incomplete=False)
    with pytest.raises(UserError, match="for changes of input, mtime; .* Add `--rerun-triggers mtime`"):
        check_reruns(["mtime", "input"], incomplete=False)
    with pytest.raises(UserError, match="--rerun-incomplete .* Leave it out"):
        check_reruns(["mtime"], incomplete=True)


def test_a_warning_that_comes_at_once_is_refused() -> None:
    check_warning("evaluate", 60, "'--signal=USR1@300'")
    check_warning("evaluate", 4, None)
    check_warning("evaluate", None, "'--signal=USR1@300'")
    with pytest.raises(UserError, match=r"rule 'evaluate' has a time limit of 5 minutes and is warned 300 s before"):
        check_warning("evaluate", 5, "'--signal=B:USR1@300'")
