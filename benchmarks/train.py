"""Training and relabel steps against plain loops that work as the released code does, in one run.

    make bench-train         # prints a table and writes results/bench/train.json

The reference reads an ImageFolder with PIL through a DataLoader of two workers, crops image by image, keeps NCHW,
updates with plain AdamW and asks for loss and accuracy in every step. Same network, batches of 16, two threads; both
sides are first checked to have the same loss on the same batch, then take turns, each in a process of its own: ours set
up as our jobs are, the reference as Python starts. `bare` is the network's own forward, backward and update on one
fixed batch. `bound` is what a loop that adds nothing at all to that would gain. Float32 on both sides, but for the rows
that say bf16.
"""

import itertools
import json
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import timm.data
import timm.loss
import torch
import torch.nn.functional as F
import torchvision.transforms as transforms
import torchvision.transforms.functional as TF
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

from hald.evaluation.cross_entropy import CrossEntropy
from hald.evaluation.hard_batches import HardBatches
from hald.evaluation.losses.kl import KL
from hald.evaluation.soft_pool import SoftPool
from hald.evaluation.spec import LossSpec, Phase, RunSpec
from hald.evaluation.student import Student, make_student
from hald.files import write_json, write_text
from hald.labels.layout import FORMAT, Header, create_store
from hald.labels.relabel import LabelTeacher, label_view, library_versions
from hald.labels.spec import LabelsSpec
from hald.labels.store import LabelStore
from hald.networks.build import build_model
from hald.networks.memory_layout import laid_out
from hald.numerics.device import setup
from hald.numerics.views import View, ViewSettings, draw_view
from hald.synthesis.image_set_writer import Unit, write_set

CPU = torch.device("cpu")
EPOCHS = 3000  # a training that is long enough to be compiled
CLASSES, IPC, SIZE, BATCH, THREADS = 10, 32, 32, 16, 2
COUNT = CLASSES * IPC
MEAN, STD = (0.3062, 0.3062, 0.3062), (0.3228, 0.3228, 0.3228)
SCALE, RATIO, T, SMOOTHING = (0.08, 1.0), (3 / 4, 4 / 3), 20.0, 0.8
# network: steps per turn, turns
NETWORKS = {"small/resnet10-w8": (40, 7), "small/resnet18": (5, 5)}
NAMES = {"small/resnet10-w8": "small", "small/resnet18": "resnet18"}
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Data:
    """The same images and labels for both sides."""

    folder: Path  # ImageFolder
    images: Tensor  # (N, 3, S, S) uint8
    store: LabelStore
    drawn: View
    probabilities: Tensor  # (N, C) at T


def spec(arch: str) -> RunSpec:
    """A run on these images."""
    return RunSpec(
        dataset="",
        labels="",
        arch=arch,
        ipc=IPC,
        pool=-(-COUNT // BATCH),
        batch=BATCH,
        classes=CLASSES,
        size=SIZE,
        mean=MEAN,
        std=STD,
        scale=SCALE,
        ratio=RATIO,
        flip=0.5,
        stages=(Phase("soft", EPOCHS),),
        epochs=EPOCHS,
        adaptive=None,
        lr=0.001,
        eta=2.0,
        weight_decay=0.01,
        beta2=0.999,
        loss=LossSpec("kl", {"temperature": T, "squared": False}),
        handover="carry",
        smoothing=SMOOTHING,
        hard_temperature=1.0,
        sampling="permutation",
        top_k=None,
        measure_every=10,
        precision="float32",
        compile="auto",
        threads=THREADS,
        origin={},
    )


def view_settings() -> ViewSettings:
    return ViewSettings(42, COUNT, BATCH, (SIZE, SIZE), SIZE, SCALE, RATIO, 0.5, "cutmix", 1.0)


def make_data(folder: Path) -> None:
    """Real digits as an ImageFolder and as one of our stores, with the same (random) labels."""
    digits = load_digits()
    chosen = np.concatenate([np.flatnonzero(digits.target == label)[:IPC] for label in range(CLASSES)])
    grey = np.rint(digits.images[chosen] * (255 / 16)).astype(np.uint8).repeat(4, 1).repeat(4, 2)
    pixels = np.ascontiguousarray(grey[:, None].repeat(3, 1))
    for i, image in enumerate(pixels):
        path = folder / "images" / f"{i // IPC:05d}" / f"class{i // IPC:05d}_id{i % IPC:05d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.transpose(1, 2, 0)).save(path)
    logits = np.random.default_rng(0).normal(0, 3, (COUNT, CLASSES)).astype(np.float32)
    make_store(folder, pixels, draw_view(view_settings(), 0), logits)


def open_data(folder: Path) -> Data:
    """What `make_data` left in a folder."""
    store = LabelStore(folder / "labels.zarr")
    exact = torch.from_numpy(store.read(["q"], 1)["q"][0].astype(np.float32))
    probabilities = torch.softmax(exact / T, dim=1)
    images = torch.from_numpy(store.images())
    return Data(folder / "images", images, store, store.drawn(0), probabilities)


def make_store(folder: Path, pixels: Pixels, drawn: View, logits: NDArray[np.float32]) -> None:
    names = [str(i) for i in range(CLASSES)]
    units = (Unit(pixels[i * IPC : (i + 1) * IPC], np.zeros(IPC, dtype=np.float32)) for i in range(CLASSES))
    write_set(folder / "set.zarr", units, names, IPC, SIZE, dataset_digest="")
    digest = json.loads((folder / "set.zarr/image_set.json").read_text())["digest"]
    header = Header(
        format=FORMAT,
        key="bench",
        code="",
        code_name="",
        classes=names,
        count=COUNT,
        batch=BATCH,
        size=SIZE,
        codec="f16",
        top_k=0,
        images_digest=digest,
        dataset_digest="",
        spec={},
        view_settings=asdict(view_settings()),
        teachers=[],
        versions=library_versions(),
    )
    create_store(folder / "labels.zarr", header, folder / "set.zarr", [])
    store = LabelStore(folder / "labels.zarr")
    with store.claim(0):
        store.write(0, drawn, logits)


# The reference: a few plain loops.


def forever(data: Data) -> Iterator[list[int]]:
    """Stored batches in stored order, over and over."""
    batches = [data.drawn.image[i : i + BATCH].tolist() for i in range(0, COUNT, BATCH)]
    return itertools.cycle(batches)


class Endless:
    """Batch sampler that never ends, so that workers start once and are not timed."""

    def __init__(self, data: Data) -> None:
        self.data = data

    def __iter__(self) -> Iterator[list[int]]:
        return forever(self.data)


def loader(data: Data, transform: Callable[[Image.Image], Tensor], ordered: bool) -> Iterator[tuple[Tensor, Tensor]]:
    images = ImageFolder(str(data.folder), transform)
    if ordered:
        return iter(DataLoader(images, batch_sampler=Endless(data), num_workers=2))  # type: ignore[arg-type]
    shuffled = DataLoader(images, BATCH, sampler=_Shuffled(), num_workers=2)
    return iter(shuffled)


class _Shuffled:
    """Random order without end."""

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from torch.randperm(COUNT).tolist()

    def __len__(self) -> int:
        return 10**9


def reference_crops(images: Tensor, data: Data, number: int) -> Tensor:
    """Stored crops image by image, then CutMix in place."""
    rows = slice(number * BATCH, (number + 1) * BATCH)
    crops = []
    for image, box, flip in zip(images, data.drawn.box[rows], data.drawn.flip[rows], strict=True):
        top, left, height, width = (int(edge) for edge in box)
        crop = TF.resized_crop(image, top, left, height, width, [SIZE, SIZE], antialias=True)
        crops.append(TF.hflip(crop) if flip else crop)
    x = TF.normalize(torch.stack(crops), MEAN, STD)
    top, left, bottom, right = (int(edge) for edge in data.drawn.cut[number])
    partner = torch.from_numpy(data.drawn.partner[rows])
    x[:, :, top:bottom, left:right] = x[partner, :, top:bottom, left:right]
    return x


def reference_soft_loss(model: nn.Module, x: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor]:
    logits = model(x)
    student = F.log_softmax(logits / T, dim=1)
    return F.kl_div(student, probabilities.float(), reduction="batchmean"), logits


class Reference:
    """A student trained by plain loops."""

    def __init__(self, arch: str, data: Data) -> None:
        torch.manual_seed(0)
        self.data, self.model = data, build_model(arch, CLASSES, SIZE).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.001, weight_decay=0.01)
        self.seen, self.hits = 0.0, 0.0
        self.raw = loader(data, transforms.ToTensor(), ordered=True)
        augment = [transforms.RandomResizedCrop(SIZE, SCALE, RATIO), transforms.RandomHorizontalFlip()]
        normalise = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
        self.cropped = loader(data, transforms.Compose([*augment, *normalise]), ordered=False)
        self.mixup = timm.data.Mixup(
            mixup_alpha=0.0, cutmix_alpha=1.0, prob=1.0, mode="batch", label_smoothing=SMOOTHING, num_classes=CLASSES
        )
        self.criterion = timm.loss.SoftTargetCrossEntropy()
        self.number = 0

    def soft(self, steps: int) -> None:
        """Soft steps, crop by crop."""
        for _ in range(steps):
            images, _ = next(self.raw)
            rows = slice(self.number * BATCH, (self.number + 1) * BATCH)
            target = self.data.probabilities[rows]
            x = reference_crops(images, self.data, self.number)
            loss, logits = reference_soft_loss(self.model, x, target)
            self.update(loss, logits, target.argmax(dim=1))
            self.number = (self.number + 1) % (COUNT // BATCH)

    def hard(self, steps: int) -> None:
        """Hard steps with timm's CutMix."""
        for _ in range(steps):
            images, labels = next(self.cropped)
            x, target = self.mixup(images, labels)
            logits = self.model(x)
            self.update(self.criterion(logits, target), logits, labels)

    def update(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """One update, and the numbers that a training log wants."""
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.seen += loss.item()
        self.hits += (logits.argmax(dim=1) == labels).float().mean().item()

    @torch.no_grad()
    def relabel(self) -> list[list[object]]:
        """One label epoch with the statistics of each batch: cut, mix, ask, keep."""
        kept: list[list[object]] = []
        self.model.train()
        for number in range(COUNT // BATCH):
            images, _ = next(self.cropped)
            top, left, bottom, right = (int(edge) for edge in self.data.drawn.cut[number])
            partner = torch.randperm(BATCH)
            images[:, :, top:bottom, left:right] = images[partner, :, top:bottom, left:right]
            kept.append([partner, torch.softmax(self.model(images) / T, dim=1).half()])
        return kept


class Ours:
    """The same student in this package."""

    def __init__(self, arch: str, data: Data) -> None:
        self.spec = spec(arch)
        self.student: Student = make_student(self.spec, 0, CPU)
        self.half: Student = make_student(replace(self.spec, precision="bf16"), 0, CPU)
        labels = torch.arange(CLASSES).repeat_interleave(IPC)
        pool, hard = SoftPool(data.store, self.spec, data.images, labels), HardBatches(self.spec, data.images, labels)
        self.softs = itertools.chain.from_iterable(pool.epoch(0, 0, epoch) for epoch in itertools.count())
        self.hards = itertools.chain.from_iterable(hard.epoch(0, epoch) for epoch in itertools.count())
        self.data, self.fixed = data, next(iter(pool.epoch(0, 0, 0)))
        self.teacher = LabelTeacher(laid_out(build_model(arch, CLASSES, SIZE), CPU).eval(), 1.0, MEAN, STD)

    def soft(self, steps: int) -> None:
        """Soft steps."""
        float(self.student.steps(itertools.islice(self.softs, steps), KL(T, False))[0].sum())

    def hard(self, steps: int) -> None:
        """Hard steps."""
        float(self.student.steps(itertools.islice(self.hards, steps), CrossEntropy())[0].sum())

    def soft_bf16(self, steps: int) -> None:
        """Soft steps in mixed precision (`precision: bf16`)."""
        float(self.half.steps(itertools.islice(self.softs, steps), KL(T, False))[0].sum())

    def hard_bf16(self, steps: int) -> None:
        """Hard steps in mixed precision."""
        float(self.half.steps(itertools.islice(self.hards, steps), CrossEntropy())[0].sum())

    def bare(self, steps: int) -> None:
        """The network's own forward, backward and update on one batch."""
        model, optimizer = self.student.model.train(), self.student.optimizer
        for _ in range(steps):
            loss = F.cross_entropy(model(self.fixed.x), self.fixed.target)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()

    def relabel(self) -> None:
        """One label epoch with the statistics of each batch."""
        label_view([self.teacher], self.data.images, self.data.drawn, labels_spec(self.spec.arch))


def labels_spec(arch: str) -> LabelsSpec:
    return LabelsSpec(
        images="",
        teachers=("",),
        weights=(1.0,),
        arch=arch,
        classes=CLASSES,
        count=COUNT,
        size=SIZE,
        batch=BATCH,
        mix="cutmix",
        mix_alpha=1.0,
        scale=SCALE,
        ratio=RATIO,
        flip=0.5,
        bn_mode="batch",
        codec="u8",
        top_k=0,
        seed=42,
        threads=THREADS,
    )


@torch.no_grad()
def check_same(arch: str, data: Data) -> None:
    """Both sides have the same soft, hard and relabel numbers on the same batch, or the benchmark stops."""
    reference, student = build_model(arch, CLASSES, SIZE), make_student(spec(arch), 0, CPU)
    reference.load_state_dict(student.model.state_dict())
    labels = torch.arange(CLASSES).repeat_interleave(IPC)
    pool = SoftPool(data.store, spec(arch), data.images, labels)
    rows = slice(0, BATCH)
    images = data.images[torch.from_numpy(data.drawn.image[rows])] / 255
    theirs, _ = reference_soft_loss(reference.train(), reference_crops(images, data, 0), data.probabilities[rows])
    first = next(pool._batch(*_first(pool)))
    ours = KL(T, False)(student.model.train()(first.x), first)
    assert abs(float(theirs) - float(ours)) < 2e-3 * float(ours), f"soft losses differ: {theirs} and {ours}"
    batch = next(iter(HardBatches(spec(arch), data.images, labels).epoch(0, 0)))
    theirs = timm.loss.SoftTargetCrossEntropy()(reference(batch.x), batch.target)
    ours = CrossEntropy()(student.model(batch.x), batch)
    assert abs(float(theirs) - float(ours)) < 1e-4 * float(ours), f"hard losses differ: {theirs} and {ours}"


def _first(pool: SoftPool) -> tuple[Tensor, slice]:
    """Stored batch 0, rendered."""
    from hald.evaluation.rendering import rendered

    x, rows = next(rendered(pool.images, pool.view, [(0, pool.rows(0))], pool.spec))
    return x, slice(rows.start, rows.stop)


def works(side: str, arch: str, data: Data) -> dict[str, Callable[[], object]]:
    """What one side is timed with: a turn of every kind of step."""
    steps, _ = NETWORKS[arch]
    if side == "ours":
        setup(THREADS)
        check_same(arch, data)
        ours = Ours(arch, data)
        return {
            "soft": lambda: ours.soft(steps),
            "hard": lambda: ours.hard(steps),
            "soft_bf16": lambda: ours.soft_bf16(steps),
            "hard_bf16": lambda: ours.hard_bf16(steps),
            "bare": lambda: ours.bare(steps),
            "relabel": ours.relabel,
        }
    torch.set_num_threads(THREADS)
    reference = Reference(arch, data)
    return {
        "soft_reference": lambda: reference.soft(steps),
        "hard_reference": lambda: reference.hard(steps),
        "relabel_reference": reference.relabel,
    }


def serve(side: str, arch: str, folder: Path, pipe: Connection) -> None:
    """A process of one side: names come in, seconds go out, until the name is empty."""
    timed = works(side, arch, open_data(folder))
    pipe.send(list(timed))
    while name := pipe.recv():
        start = time.perf_counter()
        timed[name]()
        pipe.send(time.perf_counter() - start)
    os._exit(0)  # endless loaders have no end to wait for


def compare(arch: str, folder: Path) -> dict[str, float]:
    """Median milliseconds per batch of everything, in turns."""
    steps, turns = NETWORKS[arch]
    context = multiprocessing.get_context("spawn")
    sides = {}
    for side in ("ours", "reference"):
        here, there = context.Pipe()
        context.Process(target=serve, args=(side, arch, folder, there)).start()
        sides |= dict.fromkeys(here.recv(), here)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns + 1):  # the first turn warms up
        for name in KINDS:
            sides[name].send(name)
            spent = sides[name].recv() * 1000 / (COUNT // BATCH if name.startswith("relabel") else steps)
            if turn:
                times[name].append(spent)
        print(f"{arch}: turn {turn}/{turns}", flush=True)
    for pipe in set(sides.values()):
        pipe.send("")
    return {name: statistics.median(values) for name, values in times.items()}


KINDS = (
    "soft",
    "soft_reference",
    "bare",
    "soft_bf16",
    "hard",
    "hard_reference",
    "hard_bf16",
    "relabel",
    "relabel_reference",
)


def table(arch: str, spent: dict[str, float]) -> str:
    lines = [f"**{arch}**, 32 px, batches of 16, two threads", ""]
    lines += ["| step | ours, images/s | reference, images/s | ratio |", "|---|---|---|---|"]
    for name in ("soft", "soft_bf16", "hard", "hard_bf16", "relabel"):
        ours, theirs = spent[name], spent[f"{name.removesuffix('_bf16')}_reference"]
        cells = f"{BATCH / ours * 1000:.0f} | {BATCH / theirs * 1000:.0f} | {theirs / ours:.2f}"
        lines.append(f"| {name.replace('_bf16', ', precision: bf16')} | {cells} |")
    bound = spent["soft_reference"] / spent["bare"]
    lines.append(f"| bare network step | {BATCH / spent['bare'] * 1000:.0f} | | {bound:.2f} (bound) |")
    return "\n".join([*lines, "", ""])


def main() -> None:
    made = Path("results/bench/train.json")
    made.parent.mkdir(parents=True, exist_ok=True)
    result: dict[str, float] = {}
    text = ""
    with tempfile.TemporaryDirectory(dir=made.parent) as name:
        make_data(Path(name))
        for arch, short in NAMES.items():
            spent = compare(arch, Path(name))
            text += table(arch, spent)
            for kind in ("soft", "hard", "relabel"):
                result[f"{kind}_speedup_{short}"] = spent[f"{kind}_reference"] / spent[kind]
            for kind in ("soft", "hard"):
                result[f"{kind}_bf16_speedup_{short}"] = spent[f"{kind}_reference"] / spent[f"{kind}_bf16"]
            result[f"step_over_bare_{short}"] = spent["soft"] / spent["bare"]
    write_json(made, result)
    versions = ", ".join(f"{name} {version}" for name, version in library_versions().items())
    facts = f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, {os.cpu_count()} cores, {versions}"
    write_text(made.with_suffix(".md"), f"{text}{facts}\n")
    print(f"\n{text}{facts}\n\n{made}", json.dumps(result, indent=1), sep="\n")


if __name__ == "__main__":
    main()
