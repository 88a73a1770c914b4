"""Networks of our own: their number of parameters, how they begin, and what they answer."""

import math
from collections.abc import Iterator

import torch
from adapter import NETWORKS, build, part_of
from bench import Bench, cases, stored

SIZE = 16
ARCHS = (
    "small/resnet10-w4",
    "small/resnet18-w4",
    "small/resnet34-w4",
    "small/resnet50-w4",
    "small/resnet101-w4",
    "small/resnet152-w4",
    "small/mobilenet_v2",
    "small/shufflenet_v2_x0_5",
    "small/densenet121",
    "small/densenet161",
    "small/densenet169",
    "small/densenet201",
    "small/convnet-w128",
    "sre2l/resnet18",
    "torchvision/vit_b_32",
    "torchvision/shufflenet_v2_x0_5",
    "timm/resnet10t",
)


@cases(
    {arch.replace("/", "_"): (*NETWORKS, part_of(arch)) for arch in ARCHS},
    **{arch.replace("/", "_"): arch for arch in ARCHS},
)
@stored
def network(bench: Bench, arch: str) -> Iterator[tuple[str, object, float]]:
    """Answers in both modes with weights from a formula, and the spread of the weights that it begins with."""
    size = 32 if "torchvision" in arch or "timm" in arch else SIZE
    torch.manual_seed(3)
    model = build(arch, 5, size)
    spread = [math.log(float(p.detach().double().square().mean().sqrt()) + 1e-9) for p in model.parameters()]
    yield "parameters", sum(p.numel() for p in model.parameters()), 0
    yield "spread of the first weights", [sum(spread) / len(spread), max(spread), min(spread)], 2e-4
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            wave = torch.sin(torch.arange(p.numel(), dtype=torch.float64) * 1.3 + number).view(p.shape)
            fan = p[0].numel() if p.ndim > 1 else 1
            p.copy_(wave / math.sqrt(fan) * 1.5 if p.ndim > 1 else wave * 0.2 + (p.mean() > 0.5))
        x = torch.sin(torch.arange(3 * 3 * size * size, dtype=torch.float64) * 0.37).view(3, 3, size, size)
        model = model.double()
        torch.manual_seed(0)
        yield "answers while it is trained", model.train()(x).tolist(), 1e-3
        yield "answers", model.eval()(x).tolist(), 1e-3
