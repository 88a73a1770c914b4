"""Checks that can be made before any work starts."""

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hald.data.prepare import require_counts
from hald.data.raw import require_root
from hald.errors import UserError
from hald.files import read_json
from hald.plan.model import Plan
from hald.synthesis.folder import find_images


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


def check_images(work: Iterable[dict[str, Any]]) -> None:
    """Refuse synthesis whose networks have no BN layers to match, or whose foreign images are not all there."""
    for entry in work:
        stage, spec = entry["stage"], entry["spec"]
        if stage == "statistics" or stage.startswith("recover."):
            _require_bn(stage, [(net["arch"], net["classes"], net["size"]) for net in entry["networks"]])
        elif stage == "synthesis.external":
            manifest = Path(entry["dataset"], "manifest.json")
            names = read_json(manifest)["classes"] if manifest.is_file() else None
            find_images(Path(spec["path"]), spec["classes"], spec["ipc"], names)


@functools.cache
def _bn_count(network: tuple[str, int, int]) -> int:
    import torch

    from hald.models.build import build_model
    from hald.synthesis.matching import bn_layers

    with torch.device("meta"):
        return len(bn_layers(build_model(*network)))


def _require_bn(stage: str, networks: list[tuple[str, int, int]]) -> None:
    if not any(_bn_count(network) for network in networks):
        names = ", ".join(network[0] for network in networks)
        method = "lpld" if stage == "statistics" else stage.partition(".")[2]
        raise UserError(
            f"{method} matches the statistics of BN layers, and {names} has none; set `teacher` of the image set to a "
            f"network with batch normalisation, e.g. small/resnet18 or torchvision/resnet18"
        )


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
