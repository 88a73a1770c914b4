"""Our synthesis step against a plain step as the released code writes it, on the same network, batch and draws.

    make bench-synthesis     # prints a table and writes results/bench/synthesis.json

The reference applies torchvision's transforms to the batch, computes mean and variance of every BN input separately in
a forward hook, stays in NCHW and reads the losses back with `.item()` in every step; its weights are frozen like ours.
Both are first shown to have the same loss and gradient for the same draw. Then they take turns, and medians are
compared.
"""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch._inductor.config
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.transforms.v2 import functional as tv

from hald.code_digests import versions
from hald.files import write_json, write_text
from hald.networks.build import build_model
from hald.networks.memory_layout import laid_out
from hald.synthesis.optimiser.bn_matching import Matcher
from hald.synthesis.optimiser.crops_and_rolls import Jitter, draw_jitter, matrices
from hald.synthesis.optimiser.loop import BETAS, EPS, objective, rate
from hald.synthesis.spec import Recover

CLASSES, SIZE, BATCH, STEPS = 100, 32, 100, 2000
MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)  # CIFAR-100's
SETTINGS = Recover(lr=0.25, budgets=(STEPS,), sizes=(SIZE,), r_bn=0.01, roll=(0, 4))
ROUNDS = {"small/resnet10-w16": 30, "small/resnet18": 7}
NAMES = {"small/resnet10-w16": "small", "small/resnet18": "resnet18"}
LOW, HIGH = ([(edge - m) / s for m, s in zip(MEAN, STD, strict=True)] for edge in (0, 1))


class ReleasedHook:
    """Statistics of one BN layer's input, mean and variance each in a pass of its own."""

    def __init__(self, layer: nn.BatchNorm2d) -> None:
        self.layer, self.term = layer, torch.zeros(())
        layer.register_forward_hook(self.hook)

    def hook(self, layer: nn.BatchNorm2d, inputs: tuple[Tensor], output: Tensor) -> None:
        x = inputs[0]
        mean = x.mean([0, 2, 3])
        var = x.permute(1, 0, 2, 3).contiguous().view(x.shape[1], -1).var(1, unbiased=False)
        assert layer.running_mean is not None
        assert layer.running_var is not None
        self.term = torch.norm(layer.running_var - var, 2) + torch.norm(layer.running_mean - mean, 2)


class Reference:
    """The step as it is usually written."""

    def __init__(self, arch: str, start: Tensor, labels: Tensor, jitter: Jitter) -> None:
        self.model = network(arch)
        self.hooks = [ReleasedHook(layer) for layer in self.model.modules() if isinstance(layer, nn.BatchNorm2d)]
        self.x, self.labels, self.jitter = start.clone().requires_grad_(), labels, jitter
        self.adam = torch.optim.Adam([self.x], lr=SETTINGS.lr, betas=BETAS, eps=EPS)

    def loss(self, t: int) -> tuple[Tensor, Tensor]:
        (top, left, height, width), (down, right) = self.jitter.box[t, 0].tolist(), self.jitter.roll[t, 0].tolist()
        view = tv.resized_crop(self.x, top, left, height, width, [SIZE, SIZE], antialias=True)
        view = tv.horizontal_flip(view) if self.jitter.flip[t, 0] else view
        logits = self.model(torch.roll(view, shifts=(down, right), dims=(2, 3)))
        weights = [SETTINGS.first_bn] + [1.0] * (len(self.hooks) - 1)
        term = sum(hook.term * weight for hook, weight in zip(self.hooks, weights, strict=True))
        return F.cross_entropy(logits, self.labels), torch.as_tensor(term)

    def step(self, t: int) -> None:
        for group in self.adam.param_groups:
            group["lr"] = rate(SETTINGS.lr, t, STEPS)
        self.adam.zero_grad()
        entropy, term = self.loss(t)
        total = entropy + SETTINGS.r_bn * term
        total.backward()
        self.adam.step()
        for channel in range(3):
            self.x.data[:, channel] = torch.clamp(self.x.data[:, channel], LOW[channel], HIGH[channel])
        _ = (total.item(), entropy.item(), term.item())  # logged


class Ours:
    """The step of hald.synthesis.optimiser.loop, taken apart so that it can take turns."""

    def __init__(self, arch: str, start: Tensor, labels: Tensor, jitter: Jitter, compiled: bool = False) -> None:
        model = laid_out(network(arch), torch.device("cpu"))
        self.objective = objective(Matcher(model, SETTINGS.first_bn), SETTINGS)
        if compiled:
            self.objective = torch.compile(self.objective, dynamic=False)
        self.x, self.labels = start.clone().requires_grad_(), labels
        self.rows, self.columns = matrices(jitter, 0, 64, SIZE, start.device)
        self.adam = torch.optim.Adam([self.x], lr=SETTINGS.lr, betas=BETAS, eps=EPS, fused=True)
        self.low, self.high = (torch.tensor(edge).view(1, 3, 1, 1) for edge in (LOW, HIGH))

    def loss(self, t: int) -> Tensor:
        return self.objective(self.x, self.rows[t], self.columns[t], self.labels)

    def gradient(self, t: int) -> Tensor:
        return torch.autograd.grad(self.loss(t), self.x)[0]

    def step(self, t: int) -> None:
        loss = self.loss(t)
        self.adam.param_groups[0]["lr"] = rate(SETTINGS.lr, t, STEPS)
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        with torch.no_grad():
            self.x.clamp_(self.low, self.high)


class Bare:
    """The network's own forward and backward pass, in our memory layout."""

    def __init__(self, arch: str, start: Tensor, labels: Tensor) -> None:
        self.model = laid_out(network(arch), torch.device("cpu"))
        self.x = start.clone(memory_format=torch.channels_last).requires_grad_()
        self.labels = labels

    def step(self, t: int) -> None:
        self.x.grad = None
        F.cross_entropy(self.model(self.x), self.labels).backward()


def network(arch: str) -> nn.Module:
    """A network whose BN statistics are those of random images, frozen."""
    torch.manual_seed(0)
    model = build_model(arch, CLASSES, SIZE)
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(BATCH, 3, SIZE, SIZE))
    return model.eval().requires_grad_(False)


def require_same(reference: Reference, ours: Ours, what: str) -> tuple[float, float]:
    """Relative difference of loss and gradient for a few draws; refuses to go on when there is one to speak of."""
    worst = [0.0, 0.0]
    for t in range(4):
        entropy, term = reference.loss(t)
        theirs = entropy + SETTINGS.r_bn * term
        (wanted,) = torch.autograd.grad(theirs, reference.x)
        loss = ours.loss(t)
        (found,) = torch.autograd.grad(loss, ours.x)
        worst[0] = max(worst[0], abs(float(loss.detach()) / float(theirs.detach()) - 1))
        worst[1] = max(worst[1], float((found - wanted).norm() / wanted.norm()))
    if worst[0] > 1e-4 or worst[1] > 1e-3:
        raise SystemExit(f"{what}: loss differs by {worst[0]:.1e}, gradient by {worst[1]:.1e}: nothing to compare")
    return worst[0], worst[1]


def timed(work: Callable[[int], object], t: int) -> float:
    start = time.perf_counter()
    work(t)
    return time.perf_counter() - start


def compare(arch: str) -> dict[str, float]:
    """Median seconds of a step of each kind, taking turns; and what compiling costs once."""
    labels = torch.arange(CLASSES)
    start = torch.from_numpy(np.random.default_rng(0).standard_normal((BATCH, 3, SIZE, SIZE), dtype=np.float32))
    jitter = draw_jitter(SETTINGS, 0, BATCH, 0, 0)
    reference = Reference(arch, start, labels, jitter)
    ours, compiled = (Ours(arch, start, labels, jitter, compiled=flag) for flag in (False, True))
    loss, gradient = require_same(reference, ours, arch)
    compiling = timed(compiled.gradient, 0)
    require_same(reference, compiled, f"{arch}, compiled")
    kinds = {"reference": reference, "ours": ours, "compiled": compiled, "network": Bare(arch, start, labels)}
    spent: dict[str, list[float]] = {name: [] for name in kinds}
    for turn in range(ROUNDS[arch] + 1):
        for name, kind in kinds.items():
            seconds = timed(kind.step, turn % 64)
            if turn:  # the first turn warms up
                spent[name].append(seconds)
    medians = {name: statistics.median(values) for name, values in spent.items()}
    return medians | {"compiling": compiling, "loss": loss, "gradient": gradient}


def table(rows: dict[str, dict[str, float]]) -> str:
    """Markdown: seconds of a step, ratios, and after how many steps compiling has paid for itself."""
    lines = [
        "| network | reference | ours | ratio | compiled | ratio | compile time | pays after | network's share |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for arch, row in rows.items():
        gain = row["ours"] - row["compiled"]
        pays = f"{row['compiling'] / gain:,.0f} steps" if gain > 0 else "never"
        cells = [
            f"{row['reference'] * 1e3:.0f} ms",
            f"{row['ours'] * 1e3:.0f} ms",
            f"{row['reference'] / row['ours']:.2f}",
            f"{row['compiled'] * 1e3:.0f} ms",
            f"{row['reference'] / row['compiled']:.2f}",
            f"{row['compiling']:.0f} s",
            pays,
            f"{100 * row['network'] / row['ours']:.0f} %",
        ]
        lines.append(f"| {arch} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    torch.set_num_threads(2)
    torch._inductor.config.force_disable_caches = True  # compile time is that of a first run
    rows = {arch: compare(arch) for arch in ROUNDS}
    result: dict[str, float] = {}
    for arch, row in rows.items():
        name = NAMES[arch]
        result |= {
            f"step_speedup_{name}": row["reference"] / row["ours"],
            f"compiled_speedup_{name}": row["reference"] / row["compiled"],
            f"network_share_{name}": row["network"] / row["ours"],
            f"compile_seconds_{name}": row["compiling"],
            f"loss_difference_{name}": row["loss"],
            f"gradient_difference_{name}": row["gradient"],
        }
    write_json(Path("results/bench/synthesis.json"), result)
    facts = (
        f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, {os.cpu_count()} cores, {SIZE} px, batch {BATCH}, "
        + ", ".join(f"{name} {version}" for name, version in versions("torch", "torchvision").items())
    )
    text = f"{table(rows)}\n\n{facts}\n"
    write_text(Path("results/bench/synthesis.md"), text)
    print(text, "results/bench/synthesis.json", json.dumps(result, indent=1), sep="\n")


if __name__ == "__main__":
    main()
