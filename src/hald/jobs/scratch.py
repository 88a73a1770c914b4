"""Node-local scratch: prepared datasets that are read over and over are copied to a disk of the node first.

Only where a cluster offers one: HALD_SCRATCH names it (variables in it are those of the job), else SLURM_TMPDIR. The
copy has the same bytes under the name of the same key, so results cannot depend on it, and jobs of a node share it.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from hald.files import aside, publish_dir, tree_bytes
from hald.jobs.job import Job
from hald.jobs.log import log

# Stages that go through the training images many times. The others read them once or hardly: copying would only cost.
READERS = ("squeeze", "rank", "statistics")
SPARE = 1 << 30  # bytes of the scratch disk that are left to others


def scratch_root() -> Path | None:
    """The node's own disk, if there is one to be used."""
    name = os.path.expandvars(os.environ.get("HALD_SCRATCH", "")) or os.environ.get("SLURM_TMPDIR", "")
    return Path(name) if name and "$" not in name and Path(name).is_dir() else None


def staged(job: Job[Any]) -> Job[Any]:
    """A job with its dataset on the node's own disk, where that helps and fits."""
    root = scratch_root()
    if root is None or job.stage not in READERS:
        return job
    dataset = job.spec.dataset
    return job.with_data(dataset, stage(job.made_from[dataset], root))


def stage(dataset: Path, root: Path) -> Path:
    """Copy a prepared dataset below `root`, unless another job did; the dataset itself where there is no room."""
    target = root / "hald" / dataset.name
    if (target / "manifest.json").exists():
        return target
    needed = tree_bytes(dataset)
    if shutil.disk_usage(root).free < needed + SPARE:
        log.info("scratch %s has no room for %.1f GB of %s: reading it where it is", root, needed / 1e9, dataset)
        return dataset
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = aside(target)
        shutil.copytree(dataset, copy)
        if not publish_dir(copy, target, "manifest.json"):
            shutil.rmtree(copy)
    except OSError as error:
        log.info("scratch %s cannot be used (%s): reading %s where it is", root, error, dataset)
        return dataset
    log.info("%s is read from scratch %s", dataset.name, root)
    return target
