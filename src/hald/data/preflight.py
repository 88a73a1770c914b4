"""Checks that can be made before any work starts."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hald.data.prepare import require_counts
from hald.data.raw import require_root
from hald.errors import UserError
from hald.files import read_json
from hald.plan.model import Plan

if TYPE_CHECKING:
    from torch import nn


def check_datasets(plan: Plan, keys: Iterable[str]) -> None:
    """Refuse a run whose datasets are not where the config says, or (once prepared) have too few images."""
    for key in sorted(set(keys)):
        spec = plan.datasets[key]
        folder = plan.dataset_dir(key)
        if not (folder / "manifest.json").is_file():
            if spec.source != "sklearn_digits":
                require_root(spec)
            continue
        manifest = read_json(folder / "manifest.json")
        if spec.root and "$" not in spec.root and manifest["root"] != spec.root:
            raise UserError(
                f"dataset '{spec.name}' was prepared from {manifest['root']}, the config now says {spec.root}. "
                f"If it is the same data, set the root back; if not, give the dataset another name, or remove {folder} "
                f"to prepare it anew"
            )
        labels = np.repeat(np.arange(len(manifest["classes"])), manifest["train"]["per_class"])
        require_counts(spec, manifest["classes"], labels)


def check_networks(specs: Iterable[dict[str, Any]]) -> None:
    """Refuse a run whose networks do not exist, or whose teachers' own weight files are not there or do not fit."""
    built = set()
    for spec in specs:
        network = (spec["arch"], spec["classes"], spec["size"])
        path = spec.get("path")
        if path and not Path(path).is_file():
            raise UserError(f"teacher weights {path} do not exist; correct `path` of the teacher in the experiment")
        if network in built and not path:
            continue
        built.add(network)
        from hald.models.build import build_model
        from hald.models.weights import load_weights

        model = build_model(*network)
        if path:
            load_weights(model, Path(path), spec["arch"])
        _try_size(model, spec["arch"], spec["size"])


def _try_size(model: "nn.Module", arch: str, size: int) -> None:
    """Refuse a network that cannot take images of the dataset's size."""
    import torch

    try:
        with torch.inference_mode():
            model.eval()(torch.zeros(2, 3, size, size))
    except (RuntimeError, ValueError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"network {arch} cannot take images of {size} x {size} pixels ({reason}); choose another"
        ) from None
