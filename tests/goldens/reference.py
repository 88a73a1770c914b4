"""The pipeline's arithmetic a second time: plain loops in float64, by what the papers and docs/ say.

Nothing of `hald` is imported here. Images are cropped by torchvision, gradients come from autograd, random numbers from
NumPy's Philox at the documented addresses; everything else is written out.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms.functional import resized_crop

Box = tuple[int, int, int, int]  # top, left, height, width
Pair = tuple[float, float]


class Tiny(nn.Module):
    """Two convolutions with BN and a linear head, in float64 whatever comes in: small enough to follow by hand."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, classes)
        self.double()

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, 8), what the head is fed with."""
        x = F.relu(self.bn1(self.conv1(x.double())))
        return F.relu(self.bn2(self.conv2(x))).mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, classes)."""
        logits: Tensor = self.fc(self.features(x))
        return logits


# ---- draws -----------------------------------------------------------------------------------------------------------


def generator(stream: str, seed: int, counter: int = 0) -> np.random.Generator:
    """Philox at the address (stream, seed, counter)."""
    word = int.from_bytes(hashlib.sha256(f"{stream}:{seed}".encode()).digest()[:8], "little")
    return np.random.Generator(np.random.Philox(key=np.array([word, counter], dtype=np.uint64)))


def table(stream: str, seed: int, counter: int, rows: int, width: int) -> NDArray[np.float64]:
    """Uniforms in [0, 1), row by row."""
    return generator(stream, seed, counter).random((rows, width))


def order(stream: str, seed: int, counter: int, n: int) -> list[int]:
    """A random order of 0 .. n-1."""
    return [int(i) for i in generator(stream, seed, counter).permutation(n)]


def crop_box(u: NDArray[np.float64], height: int, width: int, scale: Pair, ratio: Pair) -> Box:
    """RandomResizedCrop: ten tries, (area, aspect, y, x) each; then the largest central crop of a legal aspect."""
    for area, aspect, y, x in u.reshape(10, 4):
        wanted = height * width * (scale[0] + area * (scale[1] - scale[0]))
        shape = math.exp(math.log(ratio[0]) + aspect * (math.log(ratio[1]) - math.log(ratio[0])))
        w, h = round(math.sqrt(wanted * shape)), round(math.sqrt(wanted / shape))
        if 0 < w <= width and 0 < h <= height:
            return math.floor(y * (height - h + 1)), math.floor(x * (width - w + 1)), h, w
    h, w = height, width
    if width / height < ratio[0]:
        h = round(width / ratio[0])
    elif width / height > ratio[1]:
        w = round(height * ratio[1])
    return (height - h) // 2, (width - w) // 2, h, w


def rectangle(lam: float, centre: Sequence[float], size: int) -> Box:
    """CutMix: a square of side floor(size sqrt(1 - lam)) around a uniform centre, clipped: top, left, bottom, right."""
    half = math.floor(size * math.sqrt(1 - lam)) // 2
    y, x = (math.floor(c * size) for c in centre)
    return tuple(min(max(edge, 0), size) for edge in (y - half, x - half, y + half, x + half))  # type: ignore[return-value]


@dataclass
class View:
    """One crop of every image, row by row; rectangle and share batch by batch."""

    image: list[int]
    box: list[Box]
    flip: list[bool]
    partner: list[int]
    lam: list[float]
    cut: list[Box]
    mix: str = "cutmix"


def draw_view(seed: int, view: int, count: int, batch: int, source: int, size: int, **how: Any) -> View:
    """Label epoch `view`: how = scale, ratio, flip, mix, mix_alpha."""
    crops, batches = table("crop", seed, view, count, 41), math.ceil(count / batch)
    mixes = table("mix", seed, view, batches, 3 + batch)
    lam = [float(u) for u in mixes[:, 0]]
    if how["mix_alpha"] != 1:
        from scipy.stats import beta

        lam = [float(beta.ppf(u, how["mix_alpha"], how["mix_alpha"])) for u in lam]
    cut = [rectangle(share, row[1:3], size) for share, row in zip(lam, mixes, strict=True)]
    partner = []
    for number in range(batches):
        length = min(batch, count - number * batch)
        keys = mixes[number, 3 : 3 + length]
        partner += sorted(range(length), key=lambda i, keys=keys: keys[i])
    if how["mix"] != "cutmix":
        cut = [(0, 0, 0, 0)] * batches
    return View(
        order("order", seed, view, count),
        [crop_box(u[:40], source, source, how["scale"], how["ratio"]) for u in crops],
        [bool(u[40] < how["flip"]) for u in crops],
        partner,
        [1.0] * batches if how["mix"] == "none" else lam,
        cut,
        how["mix"],
    )


# ---- pictures --------------------------------------------------------------------------------------------------------


def picture(image: Any, box: Box, flip: bool, size: int) -> Tensor:
    """One crop of an image, resized by torchvision, then flipped: float64 in [0, 1].

    (3, H, W) uint8 is resized as float64; what has to be decoded (PIL's image) as the eight bits that PIL computes in.
    """
    if isinstance(image, Image.Image):
        crop = resized_crop(image, *box, [size, size])
        pixels = torch.from_numpy(np.array(crop)).permute(2, 0, 1).double() / 255
    else:
        pixels = resized_crop(torch.as_tensor(image).double() / 255, *box, [size, size], antialias=True)
    return pixels.flip(-1) if flip else pixels


def sides(image: Any) -> tuple[int, int]:
    """Height and width."""
    return (image.height, image.width) if isinstance(image, Image.Image) else tuple(image.shape[1:])


def normal(x: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(x - mean) / std, channel by channel."""
    return torch.stack([(x[:, c] - mean[c]) / std[c] for c in range(3)], dim=1)


def batch_of(images: NDArray[np.uint8], view: View, rows: Sequence[int], number: int, size: int) -> Tensor:
    """The mixed crops of one batch: the rectangle, or a share, of each picture comes from its partner's."""
    plain = torch.stack([picture(images[view.image[row]], view.box[row], view.flip[row], size) for row in rows])
    partner = [view.partner[row] for row in rows]
    if view.mix == "mixup":
        return view.lam[number] * plain + (1 - view.lam[number]) * plain[partner]
    top, left, bottom, right = view.cut[number]
    mixed = plain.clone()
    mixed[:, :, top:bottom, left:right] = plain[partner][:, :, top:bottom, left:right]
    return mixed


def eight_bit(x: Tensor) -> Tensor:
    """[0, 1] -> whole grey levels."""
    return (x * 255).round().clamp(0, 255).to(torch.uint8)


# ---- teachers --------------------------------------------------------------------------------------------------------


@dataclass
class Data:
    """A dataset: pixels (N, 3, S, S) uint8 and classes of both splits, and what its models are fed with.

    Training images that have to be decoded are a list of PIL's.
    """

    train: Any
    train_labels: list[int]
    test: NDArray[np.uint8]
    test_labels: list[int]
    classes: int
    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    scale: Pair
    ratio: Pair
    flip: float

    def members(self, label: int) -> list[int]:
        """Training images of a class."""
        return [i for i, known in enumerate(self.train_labels) if known == label]


def squeeze(data: Data, recipe: dict[str, Any], seed: int, fed: tuple[Any, Any]) -> Tiny:
    """A teacher: cross-entropy, one of three optimisers, warm-up and half a cosine, epoch by epoch."""
    torch.manual_seed(seed)
    model, count = Tiny(data.classes), len(data.train)
    parameters = list(model.parameters())
    first, second = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    decay, kind, steps = recipe["weight_decay"], recipe["optimizer"], 0
    for epoch in range(recipe["epochs"]):
        warm, whole = recipe["warmup"], recipe["epochs"]
        factor = (1 + math.cos(math.pi * (epoch - warm) / (whole - warm))) / 2
        rate = recipe["lr"] * (factor if epoch >= warm else 0.01 + 0.99 * epoch / warm)
        draws, rows = table("squeeze-crop", seed, epoch, count, 41), order("squeeze-order", seed, epoch, count)
        starts = range(0, count - (count % recipe["batch"] == 1), recipe["batch"])
        for start in starts:
            part = range(start, min(start + recipe["batch"], count))
            x = torch.stack([_training_crop(data, recipe, rows[i], draws[i]) for i in part])
            loss = F.cross_entropy(model(normal(x, *fed)), torch.tensor([data.train_labels[rows[i]] for i in part]))
            gradients = torch.autograd.grad(loss, parameters)
            steps += 1
            with torch.no_grad():
                for p, g, m, v in zip(parameters, gradients, first, second, strict=True):
                    if kind == "sgd":
                        m.mul_(recipe["momentum"]).add_(g + decay * p)
                        p.sub_(rate * m)
                        continue
                    if kind == "adam":
                        g = g + decay * p
                    else:
                        p.mul_(1 - rate * decay)
                    adam(p, g, m, v, steps, rate, 0.9, 0.999)
    return model.eval()


def adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: int, rate: float, beta1: float, beta2: float) -> None:
    """One step of Adam in place."""
    m.mul_(beta1).add_((1 - beta1) * g)
    v.mul_(beta2).add_((1 - beta2) * g * g)
    p.sub_(rate * (m / (1 - beta1**step)) / ((v / (1 - beta2**step)).sqrt() + 1e-8))


def _training_crop(data: Data, recipe: dict[str, Any], index: int, u: NDArray[np.float64]) -> Tensor:
    image, flip = data.train[index], bool(u[40] < data.flip)
    if recipe["crop"] == "resized":
        return picture(image, crop_box(u[:40], *sides(image), data.scale, data.ratio), flip, data.size)
    border = recipe["padding"]
    padded = np.pad(image, ((0, 0), (border, border), (border, border)))
    top, left = (math.floor(value * (2 * border + 1)) for value in u[:2])
    return picture(padded, (top, left, data.size, data.size), flip, data.size)


@torch.no_grad()
def accuracy(model: nn.Module, data: Data, fed: tuple[Any, Any]) -> tuple[float, float]:
    """Per cent of the test images whose class is the likeliest, and among the five likeliest."""
    model.eval()
    ranks = []
    for image, label in zip(data.test, data.test_labels, strict=True):
        logits = model(normal(torch.as_tensor(image)[None].double() / 255, *fed))[0].tolist()
        ranks.append(sum(value > logits[label] for value in logits))
    return tuple(100 * sum(rank < most for rank in ranks) / len(ranks) for most in (1, 5))  # type: ignore[return-value]


# ---- synthesis -------------------------------------------------------------------------------------------------------


def bn_inputs(model: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Logits, and what each BN layer is fed with, in module order."""
    seen: list[Tensor] = []
    layers = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    hooks = [layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0])) for layer in layers]
    logits = model(x)
    for hook in hooks:
        hook.remove()
    return logits, seen


@torch.no_grad()
def class_statistics(data: Data, model: Tiny, batch: int, kind: str, seed: int, fed: tuple[Any, Any]) -> list[Any]:
    """Per BN layer, mean and biased variance (classes, channels) of its input: exact, or moving averages."""
    count = len(data.train)
    rows, draws = order("statistics-order", seed, 0, count), table("statistics-crops", seed, 0, count, 41)
    pictures = [_training_crop(data, {"crop": "resized"}, row, u) for row, u in zip(rows, draws, strict=True)]
    every = bn_inputs(model, normal(torch.stack(pictures), *fed))[1]
    labels = np.array([data.train_labels[row] for row in rows])
    found = []
    for x in every:
        channels = x.shape[1]
        mean, var = np.zeros((data.classes, channels)), np.ones((data.classes, channels))
        for label in range(data.classes):
            starts = range(0, count, batch) if kind == "ema0.1" else [0]
            for start in starts:
                stop = start + batch if kind == "ema0.1" else count
                own = x[start:stop].numpy()[labels[start:stop] == label]
                if not len(own):
                    continue
                now = own.mean(axis=(0, 2, 3)), own.var(axis=(0, 2, 3))
                keep = 0.9 if kind == "ema0.1" else 0.0
                mean[label] = keep * mean[label] + (1 - keep) * now[0]
                var[label] = keep * var[label] + (1 - keep) * now[1]
        found.append((mean, var))
    return found


@torch.no_grad()
def rank(data: Data, model: Tiny, label: int, m: dict[str, Any], fed: tuple[Any, Any]) -> list[tuple[float, int, Box]]:
    """(loss, image, box) of the best crop of each image, lowest loss first."""
    members, side = data.members(label), data.size // m["factor"]
    chosen = [members[i] for i in order("rded-images", m["seed"], label, len(members))[: m["mipc"]]]
    draws = table("rded-crops", m["seed"], label, len(chosen) * m["num_crop"], 40)
    best = []
    for number, index in enumerate(chosen):
        tries = []
        for k in range(m["num_crop"]):
            where = sides(data.train[index])
            box = crop_box(draws[number * m["num_crop"] + k], *where, m["crop_scale"], (1.0, 1.0))
            crop = eight_bit(picture(data.train[index], box, False, side))
            canvas = torch.zeros(1, 3, data.size, data.size, dtype=torch.float64)
            at = (data.size - side) // 2
            canvas[:, :, at : at + side, at : at + side] = normal(crop[None].double() / 255, *fed)
            tries.append((float(F.cross_entropy(model(canvas), torch.tensor([label]))), index, box))
        best.append(min(tries, key=lambda entry: entry[0]))
    return sorted(best, key=lambda entry: entry[0])


def by_difficulty(ranked: list[Any], difficulty: str) -> list[Any]:
    """Easy: as ranked; hard: from the end; medium: from the middle outwards, the easier neighbour first."""
    if difficulty != "medium":
        return ranked if difficulty == "easy" else ranked[::-1]
    middle = (len(ranked) - 1) / 2
    return [ranked[i] for i in sorted(range(len(ranked)), key=lambda i: (abs(i - middle), i))]


def mosaic(data: Data, chosen: list[Any], factor: int) -> Tensor:
    """A factor x factor picture (3, S, S) uint8 of crops, row by row; each fills its cell by the nearest pixel."""
    size, side = data.size, data.size // factor
    edges = [0]
    for i in range(factor):
        edges.append(edges[-1] + size // factor + (i < size % factor))
    out = torch.zeros(3, size, size, dtype=torch.uint8)
    for k, (_, index, box) in enumerate(chosen):
        crop = eight_bit(picture(data.train[index], box, False, side))
        (top, bottom), (left, right) = edges[k // factor :][:2], edges[k % factor :][:2]
        for y in range(bottom - top):
            for x in range(right - left):
                at = crop[:, y * side // (bottom - top), x * side // (right - left)]
                out[:, top + y, left + x] = at
    return out


def optimise(
    start: Tensor,
    labels: list[int],
    models: list[Tiny],
    r: dict[str, Any],
    address: tuple[int, int],
    fed: tuple[Any, Any],
    targets: list[Any] | None = None,
    residual: Tensor | None = None,
    alpha: float = 1.0,
) -> Tensor:
    """The last iterate, normalised: a new Adam(0.5, 0.9) per stage, one cosine over all, teachers in turn."""
    x, done, total = start.double(), 0, sum(r["budgets"])
    mean, std = (torch.tensor(values, dtype=torch.float64).view(1, 3, 1, 1) for values in fed)
    for stage, (budget, size) in enumerate(zip(r["budgets"], r["sizes"], strict=True)):
        if stage and residual is not None:
            x = alpha * bilinear(x, size) + (1 - alpha) * bilinear(residual, size)
        draws = table(f"recover-views-{stage}", *address, budget, 43)
        if r.get("per_image"):
            draws = table(f"recover-views-{stage}", *address, budget, 43 * len(x))
        x = x.clone().requires_grad_()
        m, v = torch.zeros_like(x), torch.zeros_like(x)
        for t in range(budget):
            view = torch.cat([_jittered(x[i : i + 1], draws[t].reshape(-1, 43), i, r) for i in range(len(x))])
            model = models[(done + t) % len(models)]
            loss = objective(model, view, labels, r, targets)
            (gradient,) = torch.autograd.grad(loss, x)
            with torch.no_grad():
                rate = r["lr"] * (1 + math.cos(math.pi * (done + t) / total)) / 2
                adam(x, gradient, m, v, t + 1, rate, 0.5, 0.9)
                x.copy_(torch.minimum(torch.maximum(x, -mean / std), (1 - mean) / std))
        x, done = x.detach(), done + budget
    return x


def objective(model: Tiny, view: Tensor, labels: list[int], r: dict[str, Any], targets: list[Any] | None) -> Tensor:
    """Cross-entropy + r_bn sum_l w_l (|var - wanted|_2 + |mean - wanted|_2), and what tv and l2 add."""
    logits, inputs = bn_inputs(model, view)
    wanted = targets or [(layer.running_mean, layer.running_var) for layer in (model.bn1, model.bn2)]
    term = torch.zeros((), dtype=torch.float64)
    for number, (z, (mean, var)) in enumerate(zip(inputs, wanted, strict=True)):
        weight = r["first_bn"] if number == 0 else 1.0
        flat = z.transpose(0, 1).flatten(1)
        centre = flat.mean(dim=1)
        spread = ((flat - centre[:, None]) ** 2).mean(dim=1)
        distance = ((spread - torch.as_tensor(var)) ** 2).sum().sqrt()
        term = term + weight * (distance + ((centre - torch.as_tensor(mean)) ** 2).sum().sqrt())
    loss = F.cross_entropy(logits, torch.tensor(labels)) + r["r_bn"] * term
    if r.get("tv"):
        steps = ((0, 1), (1, 0), (1, 1), (1, -1))
        h, w = view.shape[2:]
        for down, right in steps:
            a = view[:, :, down:, max(right, 0) : w + min(right, 0)]
            b = view[:, :, : h - down, max(-right, 0) : w - max(right, 0)]
            loss = loss + r["tv"] * ((a - b) ** 2).sum().sqrt()
    if r.get("l2"):
        loss = loss + r["l2"] * (view**2).sum(dim=(1, 2, 3)).sqrt().mean()
    return loss


def _jittered(x: Tensor, draws: NDArray[np.float64], image: int, r: dict[str, Any]) -> Tensor:
    """Crop, flip, roll of one image; one draw for all images where there is but one."""
    u, size = draws[image if len(draws) > 1 else 0], x.shape[-1]
    low, high = r["roll"]
    down, right = (math.floor(low + (high - low + 1) * value) for value in u[41:43])
    if r["crop"]:
        box = crop_box(u[:40], size, size, r["scale"], r["ratio"])
        x = resized_crop(x, *box, [size, size], antialias=True)
        x = x.flip(-1) if u[40] < r["flip"] else x
    return torch.roll(x, (down, right), (2, 3))


def bilinear(x: Tensor, size: int) -> Tensor:
    """Half-pixel centres, no antialiasing, pixel by pixel."""
    old = x.shape[-1]
    if old == size:
        return x
    matrix = torch.zeros(size, old, dtype=torch.float64)
    for i in range(size):
        at = min(max((i + 0.5) * old / size - 0.5, 0), old - 1)
        low = min(int(at), old - 2)
        matrix[i, low], matrix[i, low + 1] = 1 - (at - low), at - low
    return matrix @ x.double() @ matrix.T


@torch.no_grad()
def grade(model: Tiny, images: Tensor, labels: list[int], fed: tuple[Any, Any]) -> tuple[float, float]:
    """Per cent that the teacher takes for what they mean, and the mean cosine of two images of a class."""
    x = normal(images.double() / 255, *fed)
    right = [int(row.argmax()) == label for row, label in zip(model(x), labels, strict=True)]
    features = model.features(x)
    means = []
    for label in sorted(set(labels)):
        own = [f / f.norm() for f, known in zip(features, labels, strict=True) if known == label]
        pairs = [float(a @ b) for i, a in enumerate(own) for b in own[i + 1 :]]
        means.append(sum(pairs) / len(pairs))
    return 100 * sum(right) / len(right), sum(means) / len(means)


# ---- labels ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def relabel(images: NDArray[np.uint8], view: View, batch: int, size: int, bn: str, teachers: list[Any]) -> Tensor:
    """(N, C) logits: the weighted sum over teachers (model, weight, (mean, std)), each batch on its own."""
    found = []
    for number, first in enumerate(range(0, len(images), batch)):
        x = batch_of(images, view, range(first, min(first + batch, len(images))), number, size)
        total = torch.zeros(len(x), 1, dtype=torch.float64)
        for model, weight, fed in teachers:
            model.eval()
            kept = {name: value.clone() for name, value in model.state_dict().items()}
            if bn == "batch":
                model.train()
            total = total + weight * model(normal(x, *fed))
            model.load_state_dict(kept)
            model.eval()
        found.append(total)
    return torch.cat(found)


# ---- students --------------------------------------------------------------------------------------------------------


@dataclass
class Step:
    """One batch: inputs, the teacher's logits or class probabilities, and the classes behind a soft batch."""

    x: Tensor
    target: Tensor
    own: list[int]
    partner: list[int]
    share: float


def pool_order(pool: int, per_epoch: int, seed: int, stage: int, epoch: int, sampling: str) -> list[int]:
    """Stored batches of a soft epoch: passes over permutations, distinct ones anew, or drawn with replacement."""
    counter = stage * 2**32
    if sampling == "replacement":
        return [int(i) for i in generator("pool-replacement", seed, counter + epoch).integers(pool, size=per_epoch)]
    if sampling == "epoch":
        rng, found = generator("pool-epoch", seed, counter + epoch), []
        while len(found) < per_epoch:
            found += [int(i) for i in rng.permutation(pool)]
        return found[:per_epoch]
    found = []
    for k in range(math.ceil((epoch + 1) * per_epoch / pool)):
        found += order("pool", seed, counter + k, pool)
    return found[epoch * per_epoch : (epoch + 1) * per_epoch]


@dataclass
class Training:
    """Everything that a student is trained with."""

    data: Data
    images: NDArray[np.uint8]
    ipc: int
    views: list[View]
    labels: list[Tensor]  # (N, C) stored logits of every view
    batch: int
    pool: int
    stages: list[tuple[str, int | None]]
    epochs: int
    e: dict[str, Any]  # the evaluation: lr, eta, weight_decay, beta2, loss, temperature, ...
    measure_every: int

    @property
    def classes(self) -> list[int]:
        """Class of every distilled image."""
        return [i // self.ipc for i in range(len(self.images))]

    @property
    def held(self) -> list[bool]:
        """Images that the adaptive schedule only looks at: the last few of every class."""
        out = self.e["adaptive"]["held_out"] if self.e.get("adaptive") else 0
        return [i % self.ipc >= self.ipc - out for i in range(len(self.images))]

    def soft_step(self, number: int, whole: bool = False) -> Step | None:
        """Stored batch `number` of the pool; without what may not be seen, unless `whole`."""
        per_view = math.ceil(len(self.images) / self.batch)
        v, b = divmod(number, per_view)
        view, rows = self.views[v], list(range(b * self.batch, min((b + 1) * self.batch, len(self.images))))
        x = normal(batch_of(self.images, view, rows, b, self.data.size), self.data.mean, self.data.std)
        top, left, bottom, right = view.cut[b]
        share = 1 - (bottom - top) * (right - left) / self.data.size**2 if view.mix != "mixup" else view.lam[b]
        own = [view.image[row] for row in rows]
        partner = [view.image[rows[0] + view.partner[row]] for row in rows]
        target = self.labels[v][rows].double()
        if self.e.get("top_k"):
            for line in target:
                line[line < line.sort(descending=True).values[self.e["top_k"] - 1]] = -torch.inf
        kept = range(len(rows))
        if not whole:
            kept = [i for i in kept if not (self.held[own[i]] or (self.held[partner[i]] and share < 1))]
        if len(kept) < 2 and any(self.held):
            return None
        own, partner = ([self.classes[images[i]] for i in kept] for images in (own, partner))
        return Step(x[list(kept)], target[list(kept)], own, partner, share)

    def soft_epoch(self, seed: int, stage: int, epoch: int) -> Iterator[Step]:
        """The steps of a soft epoch."""
        per_epoch = math.ceil(len(self.images) / self.batch)
        for number in pool_order(self.pool, per_epoch, seed, stage, epoch, self.e["sampling"]):
            step = self.soft_step(number)
            if step:
                yield step

    def hard_epoch(self, seed: int, epoch: int) -> Iterator[Step]:
        """The steps of a hard epoch: fresh crops, the reversed batch as partner, smoothed mixed classes."""
        seen = [i for i in range(len(self.images)) if not self.held[i]]
        n, size, data = len(seen), self.data.size, self.data
        crops = table("hard-crop", seed, epoch, n, 41)
        mixes = table("hard-mix", seed, epoch, math.ceil(n / self.batch), 3)
        rows = order("hard-order", seed, epoch, n)
        for number, first in enumerate(range(0, n, self.batch)):
            length = min(self.batch, n - first) // 2 * 2
            at = list(range(first, first + length))
            plain = []
            for i in at:
                source = self.images[seen[rows[i]]]
                box = crop_box(crops[i][:40], *source.shape[1:], data.scale, data.ratio)
                plain.append(picture(source, box, bool(crops[i][40] < data.flip), size))
            x = torch.stack(plain)
            top, left, bottom, right = rectangle(mixes[number][0], mixes[number][1:3], size)
            mixed = x.clone()
            mixed[:, :, top:bottom, left:right] = x.flip(0)[:, :, top:bottom, left:right]
            share = 1 - (bottom - top) * (right - left) / size**2
            own = [self.classes[seen[rows[i]]] for i in at]
            target = share * self.smoothed(own) + (1 - share) * self.smoothed(own[::-1])
            yield Step(normal(mixed, data.mean, data.std), target, own, own[::-1], share)

    def smoothed(self, classes: list[int]) -> Tensor:
        """Class probabilities: 1 - s + s / C for the class, s / C for every other."""
        s, count = self.e["smoothing"], self.data.classes
        target = torch.full((len(classes), count), s / count, dtype=torch.float64)
        for row, label in enumerate(classes):
            target[row, label] += 1 - s
        return target

    def soft_loss(self, z: Tensor, step: Step, epoch: int, student: float) -> Tensor:
        """The loss of a soft stage, by its name."""
        e, given, kind = self.e, self.e["loss"], self.e["loss"]["name"]
        if kind == "gift":
            hot = torch.full((len(z), z.shape[1]), 0.1 / (z.shape[1] - 1), dtype=torch.float64)
            for row, (own, partner) in enumerate(zip(step.own, step.partner, strict=True)):
                parts = ((own, 1.0),) if given["label"] == "own" else ((own, step.share), (partner, 1 - step.share))
                for label, share in parts:
                    hot[row, label] += share * (0.9 - 0.1 / (z.shape[1] - 1))
            teacher = step.target - step.target.mean(dim=1, keepdim=True)
            target = unit(teacher) + given["weight"] * unit(hot)
            return 1 - (unit(z) * unit(target)).sum(dim=1).mean()
        if kind == "lpqld":
            factor = given["factor"] ** ((epoch + 1) // given["every"])
            teacher_t = max(given["floor"], e["temperature"] * factor)
            return divergence(z / student, step.target / teacher_t)
        loss = divergence(z / e["temperature"], step.target / e["temperature"])
        loss = loss * (e["temperature"] ** 2 if e["kd_scale"] == "T2" else 1)
        if kind == "joint":
            mixed = step.share * self.smoothed(step.own) + (1 - step.share) * self.smoothed(step.partner)
            loss = loss - given["weight"] * (mixed * z.log_softmax(1)).sum(dim=1).mean()
        return loss

    def hard_temperature(self) -> float:
        """As given; or the temperature at which stored labels are as confident as smoothed ones, by bisection."""
        if self.e["hard_temperature"] != "matched":
            return float(self.e["hard_temperature"])
        wanted = 1 - self.e["smoothing"] + self.e["smoothing"] / self.data.classes
        z = torch.cat([self.soft_step(i, whole=True).target for i in range(self.pool)])  # type: ignore[union-attr]
        low, high = 1.0, 100.0
        while high - low > 1e-6:
            middle = (low + high) / 2
            confident = float((z / middle).softmax(1).amax(1).mean()) > wanted
            low, high = (middle, high) if confident else (low, middle)
        return low

    def train(self, seed: int) -> dict[str, Any]:
        """A student from its first step to its record."""
        e = self.e
        torch.manual_seed(seed)
        model = Tiny(self.data.classes)
        named = list(model.named_parameters())
        first, second = ([torch.zeros_like(p) for _, p in named] for _ in range(2))
        starts, curve, watched = [0], [], []
        steps, student_t, hot = 0, 1.0, self.hard_temperature() if any(k == "hard" for k, _ in self.stages) else 1.0
        for epoch in range(self.epochs):
            length = self.stages[len(starts) - 1][1]
            if length is not None and epoch == starts[-1] + length:
                starts.append(epoch)
            number, kind = len(starts) - 1, self.stages[len(starts) - 1][0]
            if epoch == starts[-1] and number and e["handover"] == "reset":
                steps, first, second = 0, [m * 0 for m in first], [v * 0 for v in second]
            rate = e["lr"] / 2 * (1 + math.cos(math.pi * epoch / (self.epochs * e["eta"])))
            model.train()
            soft = kind == "soft"
            losses = []
            for step in self.soft_epoch(seed, number, epoch - starts[-1]) if soft else self.hard_epoch(seed, epoch):
                z = model(step.x)
                if soft:
                    loss = self.soft_loss(z, step, epoch, student_t)
                else:
                    loss = -(hot**2) * (step.target * (z / hot).log_softmax(1)).sum(dim=1).mean()
                gradients = torch.autograd.grad(loss, [p for _, p in named])
                steps += 1
                losses.append(float(loss.detach()))
                with torch.no_grad():
                    for (name, p), g, m, v in zip(named, gradients, first, second, strict=True):
                        if "weight" in name and p.ndim > 1:
                            p.mul_(1 - rate * e["weight_decay"])
                        adam(p, g, m, v, steps, rate, 0.9, e["beta2"])
            if soft and e["loss"]["name"] == "lpqld":
                grid = [i / 100 for i in range(1, 101)]
                student_t = min(grid, key=lambda t: float(self.soft_loss(z.detach(), step, epoch, t)))
            if e.get("adaptive"):
                watched.append(self.watch(model, epoch, student_t))
                if self.goes_on(starts, watched):
                    starts.append(epoch + 1)
            if (epoch + 1) % self.measure_every == 0 or epoch + 1 == self.epochs:
                top = accuracy(model, self.data, (self.data.mean, self.data.std))
                point = {"epoch": epoch + 1, "stage": kind, "lr": rate, "loss": sum(losses) / len(losses)}
                curve.append(point | {"top1": top[0], "top5": top[1]})
        best = max(curve, key=lambda point: (point["top1"], -point["epoch"]))
        return {
            "top1": curve[-1]["top1"],
            "top5": curve[-1]["top5"],
            "best": {"epoch": best["epoch"], "top1": best["top1"]},
            "stage_starts": starts,
            "curve": curve,
            "hard_temperature": hot,
        }

    @torch.no_grad()
    def watch(self, model: Tiny, epoch: int, student_t: float) -> tuple[float, float, float]:
        """On held-out images: accuracy (%), mean entropy over ln C; the soft loss on stored crops of them."""
        model.eval()
        out = [i for i in range(len(self.images)) if self.held[i]]
        x = torch.stack([torch.as_tensor(self.images[i]).double() / 255 for i in out])
        p = model(normal(x, self.data.mean, self.data.std)).softmax(1)
        right = [int(row.argmax()) == self.classes[i] for row, i in zip(p, out, strict=True)]
        entropy = float(-(p * p.log()).sum(1).mean()) / math.log(self.data.classes)
        soft = 0.0
        if self.e["adaptive"].get("divergence") is not None:
            parts = []
            for number in range(self.pool):
                step, (v, b) = self.soft_step(number, whole=True), divmod(number, -(-len(self.images) // self.batch))
                assert step is not None
                rows = [
                    i for i in range(len(step.x)) if self.held[self.views[v].image[b * self.batch + i]]
                ]  # as themselves
                parts += [(step.x[i], step.target[i], step.own[i], step.partner[i], step.share) for i in rows]
            x, target, own, partner, shares = zip(*parts, strict=True)
            whole = Step(torch.stack(x), torch.stack(target), list(own), list(partner), shares[0])
            soft = float(self.soft_loss(model(whole.x), whole, epoch, student_t))
        return 100 * sum(right) / len(right), entropy, soft

    def goes_on(self, starts: list[int], watched: list[Any]) -> bool:
        """Whether the adaptive schedule begins its next stage after this epoch."""
        a, number, done = self.e["adaptive"], len(starts) - 1, len(watched)
        inside = done - starts[-1]
        if number == 2 or inside < a["shortest"]:
            return False
        if done >= self.epochs - (2 - number) * a["shortest"]:
            return True
        if inside <= a["window"]:
            return False
        now, then = watched[-1], watched[-1 - a["window"]]
        if number == 1:
            return abs(now[1] - then[1]) < a["entropy"]
        if a.get("divergence") is not None:
            return (then[2] - now[2]) / then[2] < a["divergence"]
        return (now[0] - then[0]) / a["window"] < a["accuracy"]


def unit(x: Tensor) -> Tensor:
    """Rows of length one."""
    return x / (x**2).sum(dim=1, keepdim=True).sqrt()


def divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean over rows of KL(softmax(teacher) || softmax(student)); a class that the teacher lacks has none."""
    p = teacher.softmax(1)
    terms = torch.where(p > 0, p * (p.clamp(min=1e-300).log() - student.log_softmax(1)), torch.zeros_like(p))
    return terms.sum(dim=1).mean()
