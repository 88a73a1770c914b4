"""Device, threads and memory of a job."""

import ctypes
import os

import torch

from hald.jobs.gpu_lease import lease_device

# glibc's mallopt parameters: when freed memory goes back to the system, by how much the heap grows, how many blocks may
# be mappings of their own
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4


def setup(threads: int) -> torch.device:
    """Choose the device (CUDA when there is one; HALD_DEVICE overrides) and fix the number of CPU threads.

    The thread count comes from the run's specification, because sums depend on it: results do not depend on where a
    job ran. Where several GPUs are visible, the job takes one that no other job of this machine has.
    """
    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = True
    device = torch.device(os.environ.get("HALD_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cpu":
        keep_freed_memory()
    elif str(device) == "cuda" and torch.cuda.device_count() > 1:
        device = torch.device("cuda", lease_device(torch.cuda.device_count()))
        torch.cuda.set_device(device)
    return device


def keep_freed_memory() -> bool:
    """Let the C library keep freed blocks for the next tensors of their size; whether it could be told to (glibc).

    By default every block of some megabytes is a mapping of its own, given back when the tensor dies, so that each
    activation is paid for again page by page: a third of the time of a large forward pass on a CPU.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return all([mallopt(MMAP_MAX, 0), mallopt(TRIM_THRESHOLD, 2**31 - 1), mallopt(TOP_PAD, 64 << 20)])
