"""Units of synthesis on disk: a folder of NNNNN.npz files, each whole or not there.

A job computes a block of units and keeps each as soon as it is finished, so that a killed job goes on with the next
one. A unit's content depends on its number alone, never on the job that computed it.
"""

import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hald.errors import UserError
from hald.files import write_atomic
from hald.jobs.job import Job
from hald.jobs.units import missing_units

Arrays = Mapping[str, NDArray[Any]]


def unit_file(folder: Path, unit: int) -> Path:
    """File of one unit; hald.plan.stages names it likewise."""
    return folder / f"{unit:05d}.npz"


def save_unit(folder: Path, unit: int, arrays: Arrays) -> None:
    """Write one unit, in one step."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as handle:
            np.savez(handle, **arrays)  # type: ignore[arg-type]

    write_atomic(unit_file(folder, unit), write)


def load_unit(folder: Path, unit: int) -> dict[str, NDArray[Any]]:
    """Read one unit."""
    try:
        with np.load(unit_file(folder, unit)) as content:
            return dict(content)
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise UserError(f"unit {unit_file(folder, unit)} cannot be read ({error}); remove it and run again") from error


def compute_units(job: Job[Any], make: Callable[[int], Arrays], device: torch.device) -> None:
    """Make those units of a job that are not there yet."""
    start, made = time.monotonic(), 0
    for unit in missing_units(job, "units"):
        for remains in job.folder.glob(f".{unit:05d}.npz.*"):  # of a killed job
            remains.unlink()
        save_unit(job.folder, unit, make(unit))
        made += 1
    job.note_time(start, device.type, made)


def require_digest(arrays: Arrays, digest: str, what: str) -> None:
    """Refuse a unit that was made from other real images than the dataset at hand."""
    found = str(arrays["dataset_digest"])
    if found and digest and found != digest:
        raise UserError(
            f"{what} was made from other real images (digest {found[:8]}) than the dataset has now ({digest[:8]}); "
            f"give one of the two datasets another name in the config, or remove what is old"
        )
