"""Checks of raw data that can be made before any work starts."""

from collections.abc import Iterable

import numpy as np

from hald.data.prepare import require_counts
from hald.data.sources import require_root
from hald.files import read_json
from hald.plan.model import Plan


def check_datasets(plan: Plan, keys: Iterable[str]) -> None:
    """Refuse a run whose datasets are not where the config says, or (once prepared) have too few images."""
    for key in sorted(set(keys)):
        spec = plan.datasets[key]
        manifest = plan.dataset_dir(key) / "manifest.json"
        if manifest.is_file():
            content = read_json(manifest)
            labels = np.repeat(np.arange(len(content["classes"])), content["train"]["per_class"])
            require_counts(spec, content["classes"], labels)
        elif spec.source != "sklearn_digits":
            require_root(spec)
