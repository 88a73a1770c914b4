"""Finished teachers, as synthesis and relabel use them."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from hald.errors import UserError
from hald.files import file_digest, read_json
from hald.networks.build import build_model
from hald.networks.memory_layout import laid_out
from hald.networks.weights import load_weights
from hald.same_origin import require_same_classes


def load_teacher(
    folder: Path, classes: list[str], floor: float, device: torch.device
) -> tuple[nn.Module, dict[str, Any]]:
    """A finished teacher in eval mode and its record; refused below its accuracy floor or for other classes."""
    record = read_json(folder / "teacher.json")
    require_same_classes(
        record["classes"],
        f"teacher {folder}",
        classes,
        "the dataset",
        f"Remove {folder} and run again to train it anew.",
    )
    if record["top1"] < floor:
        raise UserError(
            f"teacher {folder.name} reaches {record['top1']:.2f} % top-1, the dataset's floor is {floor:g} %: "
            f"its labels would be worth little. Train it longer (teachers: recipe: epochs), or lower the dataset's "
            f"`floor` knowingly"
        )
    if file_digest(folder / "teacher.safetensors") != record["sha256"]:
        raise UserError(
            f"the weights of teacher {folder} are damaged: they are not those that its record was written for. "
            f"Remove {folder} and run again to have it made anew, or put it back from a copy"
        )
    model = build_model(record["arch"], len(record["classes"]), record["size"])
    load_weights(model, folder / "teacher.safetensors", record["arch"])
    return laid_out(model, device).eval().requires_grad_(False), record
