"""Device and threads of a job."""

import os

import torch


def setup(threads: int) -> torch.device:
    """Choose the device (CUDA when there is one; HALD_DEVICE overrides) and fix the number of CPU threads.

    The thread count comes from the run's specification, because sums depend on it: results do not depend on where a
    job ran.
    """
    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = True
    return torch.device(os.environ.get("HALD_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu"))
