"""Devices for concurrent jobs on one machine without a scheduler: each job takes a GPU that no other job has.

Slurm gives every job its own GPUs. Snakemake alone only counts them (`--resources gpu=4`), so jobs that run beside each
other choose by locking one file per device. The kernel drops a lock with the process that holds it, however it ends.
"""

import contextlib
import fcntl
import os
import tempfile
import time
from pathlib import Path

from hald.jobs.log import log

WAIT = 1.0  # seconds between looks when all devices are taken
_held: dict[int, int] = {}  # device -> descriptor whose lock lasts as long as this process


def folder() -> Path:
    """Where the lock files of this machine are; all its users share them."""
    place = Path(os.environ.get("HALD_LEASES") or Path(tempfile.gettempdir(), "hald-devices"))
    place.mkdir(exist_ok=True)
    with contextlib.suppress(PermissionError):  # its maker has done it
        place.chmod(0o777)
    return place


def names(count: int) -> list[str]:
    """Names of the visible devices that mean the same in every process: a process may see only some of them."""
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return visible[:count] if len(visible) >= count else [str(number) for number in range(count)]


def lease_device(count: int) -> int:
    """One of `count` visible devices for this process until it ends; waits while other jobs have them all."""
    if _held:
        return next(iter(_held))
    place, said = folder(), False
    while True:
        for device, name in enumerate(names(count)):
            if _take(place / f"{name.replace('/', '-')}.lock", device):
                return device
        if not said:
            log.info(
                "all %d devices are in use by other jobs; waiting (limit jobs with --resources gpu=%d)", count, count
            )
            said = True
        time.sleep(WAIT)


def _take(path: Path, device: int) -> bool:
    """Lock one device's file, if nobody has."""
    mask = os.umask(0)  # another user's jobs must be able to lock it too
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    finally:
        os.umask(mask)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    _held[device] = descriptor
    return True
