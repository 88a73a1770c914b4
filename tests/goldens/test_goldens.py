"""Every golden case, here and as another type of CPU computes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cases import CASES, Bench, run

from hald.plan.ledger import keyed_parts

OTHER_CPU = {"ONEDNN_MAX_CPU_ISA": "SSE41", "ATEN_CPU_CAPABILITY": "default", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("goldens"))


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, bench: Bench) -> None:
    checks = run(name, bench)
    assert checks
    wrong = [f"{c.name}: {c.error():.3g} times what rounding may make" for c in checks if c.error() > 1]
    assert not wrong, "\n".join(wrong)


def test_every_stage_has_a_case() -> None:
    """One without could never be blessed."""
    assert {part for parts, _ in CASES.values() for part in parts} == set(keyed_parts())


@pytest.mark.slow
def test_all_cases_on_another_type_of_cpu() -> None:
    """The same seed trains another teacher there; what a case says of it holds all the same."""
    command = [sys.executable, str(Path(__file__).with_name("cases.py"))]
    done = subprocess.run(command, env=os.environ | OTHER_CPU, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
