"""Device and threads of a job."""

import os

import torch

from hald.lease import lease_device


def setup(threads: int) -> torch.device:
    """Choose the device (CUDA when there is one; HALD_DEVICE overrides) and fix the number of CPU threads.

    The thread count comes from the run's specification, because sums depend on it: results do not depend on where a
    job ran. Where several GPUs are visible, the job takes one that no other job of this machine has.
    """
    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = True
    device = torch.device(os.environ.get("HALD_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu"))
    if str(device) == "cuda" and torch.cuda.device_count() > 1:
        device = torch.device("cuda", lease_device(torch.cuda.device_count()))
        torch.cuda.set_device(device)
    return device
