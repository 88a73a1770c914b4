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
from hald.jobs import Progress, StopRequest, exclusive, log, write_timing

Arrays = Mapping[str, NDArray[Any]]


def unit_file(folder: Path, unit: int) -> Path:
    """File of one unit; hald.plan.model names it likewise."""
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


def compute_units(
    folder: Path,
    units: range,
    make: Callable[[int], Arrays],
    effort: tuple[str, float],
    device: torch.device,
) -> None:
    """Make those of `units` that are not there yet; `effort` is the kind and amount of work of one."""
    missing = [unit for unit in units if not unit_file(folder, unit).exists()]
    log.info("%d of units %d-%d to compute", len(missing), units.start, units.stop - 1)
    start, made = time.monotonic(), 0
    progress = Progress(len(missing), "units")
    with StopRequest() as stop:
        for unit in missing:
            stop.check()
            with exclusive(folder / "claims" / f"{unit:05d}.json"):
                if not unit_file(folder, unit).exists():  # another job may have made it meanwhile
                    for remains in folder.glob(f".{unit:05d}.npz.*"):  # of a killed job
                        remains.unlink()
                    save_unit(folder, unit, make(unit))
                    made += 1
            progress.step()
    kind, work = effort
    timing = folder / "timings" / f"{time.time_ns()}.json"
    write_timing(timing, time.monotonic() - start, device.type, kind, work * made)


def require_digest(arrays: Arrays, digest: str, what: str) -> None:
    """Refuse a unit that was made from other real images than the dataset at hand."""
    found = str(arrays["dataset_digest"])
    if found and digest and found != digest:
        raise UserError(
            f"{what} was made from other real images (digest {found[:8]}) than the dataset has now ({digest[:8]}); "
            f"give one of the two datasets another name in the config, or remove what is old"
        )
