"""The optimiser step, and what it needs to be kept: model, AdamW, gradient scaler."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hald.errors import UserError
from hald.evaluation.batches import Batch
from hald.evaluation.loss import Loss
from hald.evaluation.spec import RunSpec
from hald.networks.build import build_model
from hald.networks.memory_layout import can_compile, laid_out, may_be_channels_last

COMPILE_FROM = 40_000  # steps; a small network on two CPU cores wins about 1 ms in each and takes 35 s to compile
PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class Student:
    """A network in training. `forward` is the network itself or its compiled form; both share their tensors."""

    model: nn.Module
    forward: Any
    optimizer: torch.optim.AdamW
    scaler: torch.amp.GradScaler
    precision: torch.dtype | None
    device: torch.device

    def steps(self, batches: Iterator[Batch], loss_function: Loss) -> tuple[Tensor, Tensor, Batch]:
        """One optimiser step per batch: all losses (n,), still on the device, and the last step's logits and batch."""
        self.model.train()
        losses: list[Tensor] = []
        for batch in batches:
            with self.autocast():
                logits = self.forward(batch.x)
            logits = logits.float()
            loss = loss_function(logits, batch)
            self.optimizer.zero_grad(set_to_none=True)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            losses.append(loss.detach())
        if not losses:
            raise UserError("an epoch has no batch of two images or more; hold out fewer images or raise the IPC")
        return torch.stack(losses), logits.detach(), batch

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Mixed precision where the run wants it."""
        if self.precision is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.precision)


def make_student(spec: RunSpec, seed: int, device: torch.device) -> Student:
    """A freshly initialised student, channels last."""
    torch.manual_seed(seed)
    model = laid_out(build_model(spec.arch, spec.classes, spec.size), device)
    scaler = torch.amp.GradScaler(device.type, enabled=spec.precision == "fp16")
    return Student(
        model,
        compiled(model, spec, device),
        make_optimizer(model, spec),
        scaler,
        PRECISIONS.get(spec.precision),
        device,
    )


def compiled(model: nn.Module, spec: RunSpec, device: torch.device) -> Any:
    """The network as torch.compile makes it: `on`, or with CUDA graphs (`graphs`); `off`: as it is.

    `auto` asks for the length of one seed alone, so that a run's numbers do not depend on how seeds are cut into jobs.
    """
    how = spec.compile
    if how == "auto":
        how = "on" if spec.steps >= COMPILE_FROM and can_compile(model, device) else "off"
    if how == "off":
        return model
    if not may_be_channels_last(model, device):
        raise UserError("this network has too few channels to be compiled for a CPU; set `compile: off`")
    return torch.compile(model, mode="reduce-overhead" if how == "graphs" else "default")


def make_optimizer(model: nn.Module, spec: RunSpec) -> torch.optim.AdamW:
    """AdamW that decays weights of more than one dimension only (biases and BN are left alone)."""
    named = list(model.named_parameters())
    decayed = [p for name, p in named if "weight" in name and p.ndim > 1]
    rest = [p for name, p in named if not ("weight" in name and p.ndim > 1)]
    groups = [{"params": decayed, "weight_decay": spec.weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=spec.lr, betas=(0.9, spec.beta2), fused=True)
