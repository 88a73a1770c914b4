"""Label store against the released format: bytes, writing, loading, batch access and label error, in one run.

    make bench-labels        # prints a table and writes results/bench/labels.json

Two sets of logits: C = 100 from a network trained here (CIFAR-100 when HALD_DATA has it, else pairs of scikit-learn's
digits), and C = 1000 drawn to have the spread and entropy of real ImageNet logits: KL(label || uniform) = 2.1e-3 at
T = 20. The peers' format is written by `peer_write`, a few lines below.
"""

import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from hald.datasets.decode import decode
from hald.datasets.sources import parquet
from hald.datasets.spec import DatasetSpec
from hald.files import array_digest, tree_bytes, write_json, write_text
from hald.labels.codec import codec_names, codec_of
from hald.labels.layout import FORMAT, Header, create_store
from hald.labels.relabel import library_versions
from hald.labels.store import GEOMETRY, LabelStore
from hald.networks.build import build_model
from hald.numerics.views import View, ViewSettings, draw_view, normalize, render_batches
from hald.synthesis.image_set_writer import Unit, write_set

T, BATCH, ROUNDS = 20.0, 16, 5
HALF = (0.5, 0.5, 0.5)
Logits = NDArray[np.float32]


def imagenet_like(rows: int, classes: int = 1000) -> Logits:
    """Rows with a Gaussian bulk and a right tail, scaled to KL(label || uniform) = 2.1e-3 at T = 20."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(rows, classes)).astype(np.float32)
    tail = rng.random((rows, classes)) < 0.01
    z += tail * rng.exponential(1.2, (rows, classes)).astype(np.float32)
    z[np.arange(rows), rng.integers(0, classes, rows)] += 2.5
    z *= rng.lognormal(0, 0.15, (rows, 1)).astype(np.float32)
    return z * np.float32(np.sqrt(2.1e-3 / kl_uniform(z)))


def kl_uniform(z: Logits) -> float:
    """Mean KL(softmax(z / T) || uniform) in nats."""
    log_p = torch.log_softmax(torch.from_numpy(z).double() / T, dim=1)
    return float((log_p.exp() * (log_p + np.log(z.shape[1]))).sum(dim=1).mean())


def mean_kl(z: Logits, log_q: torch.Tensor) -> float:
    """Mean KL between the exact label and the one with log-probabilities `log_q`."""
    log_p = torch.log_softmax(torch.from_numpy(z).double() / T, dim=1)
    return float((log_p.exp() * (log_p - log_q)).sum(dim=1).mean())


def real_images() -> tuple[NDArray[np.uint8], NDArray[np.int64], str]:
    """20,000 training images of 100 classes at 32 px."""
    root = Path(os.environ.get("HALD_DATA", "")) / "cifar100"
    rng = np.random.default_rng(0)
    if root.is_dir():
        spec = DatasetSpec("cifar100", "parquet", None, "train", "test", None, 100, 32, None, str(root), False, 1)
        raw = parquet.read(spec).train
        chosen = rng.permutation(len(raw.labels))[:20000]
        pixels = np.stack([decode(raw.read(int(i)), "").transpose(2, 0, 1) for i in chosen])
        return pixels, raw.labels[chosen], "CIFAR-100"
    from sklearn.datasets import load_digits

    digits = load_digits()
    small = np.rint(digits.images * (255 / 16)).astype(np.uint8).repeat(2, 1).repeat(2, 2)
    left, right = rng.integers(0, len(small), (2, 20000))
    grey = np.zeros((20000, 32, 32), dtype=np.uint8)
    grey[:, 8:24, :16], grey[:, 8:24, 16:] = small[left], small[right]
    labels = digits.target[left] * 10 + digits.target[right]
    return grey[:, None].repeat(3, 1), labels.astype(np.int64), "pairs of digits"


def real_logits(views: int, images: int) -> tuple[Logits, str]:
    """Logits of a network trained here, for `views` views of `images` of its images: (views * images, 100)."""
    torch.manual_seed(0)
    pixels, labels, name = real_images()
    model = build_model("small/resnet10-w16", 100, 32)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    x, y = torch.from_numpy(pixels), torch.from_numpy(labels)
    for epoch in range(2):
        for rows in torch.randperm(len(x)).split(128):
            loss = F.cross_entropy(model(normalize(x[rows] / 255, HALF, HALF)), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"training a network on {name}: epoch {epoch + 1}/2, loss {float(loss.detach()):.2f}", flush=True)
    model.eval()
    out = []
    with torch.inference_mode():
        for view in range(views):
            rows_of_view = np.arange(images)
            drawn = draw_view(settings(images, 32), view)
            crops = render_batches(x[:images], drawn, rows_of_view, rows_of_view // BATCH, 32)
            out += [model(normalize(part, HALF, HALF)) for part in crops.split(500)]
    return torch.cat(out).numpy(), name


def settings(images: int, size: int) -> ViewSettings:
    return ViewSettings(42, images, BATCH, (size, size), size, (0.08, 1.0), (0.75, 4 / 3), 0.5, "cutmix", 1.0)


def peer_write(folder: Path, logits: Logits, drawn: list[View], size: int) -> None:
    """The released format: one torch file per label epoch, a list of batches with fp16 boxes and probabilities."""
    folder.mkdir()
    images = len(drawn[0].image)
    for epoch, view in enumerate(drawn):
        p = torch.softmax(torch.from_numpy(logits[epoch * images : (epoch + 1) * images]) / T, dim=1).half()
        batches = []
        for number, i in enumerate(range(0, images, BATCH)):
            rows = slice(i, min(i + BATCH, images))
            box = torch.from_numpy(view.box[rows] / size).half()
            flip, partner = torch.from_numpy(view.flip[rows].copy()), torch.from_numpy(view.partner[rows].copy())
            cut = tuple(int(edge) for edge in view.cut[number])
            batches.append([box, flip, partner, float(view.lam[number]), cut, p[rows].clone()])
        torch.save(batches, folder / f"epoch_{epoch}.tar")
    order = {str(epoch): torch.from_numpy(view.image) for epoch, view in enumerate(drawn)}
    torch.save(order, folder / "sampler_indices_dict.pt")


def peer_load(folder: Path, epochs: int) -> list[list[list[torch.Tensor]]]:
    return [torch.load(folder / f"epoch_{epoch}.tar", weights_only=False) for epoch in range(epochs)]


def our_store(folder: Path, codec: str, classes: int, count: int, size: int) -> LabelStore:
    """An empty store (its one-pixel images are not counted: the peers' directory has none)."""
    names = [str(i) for i in range(classes)]
    pixel = np.zeros((1, 3, 1, 1), dtype=np.uint8)
    images = folder.with_suffix(".images")
    units = (Unit(pixel, np.zeros(1, dtype=np.float32)) for _ in names)
    write_set(images, units, names, 1, 1, dataset_digest="")
    header = Header(
        format=FORMAT,
        key="bench",
        code="",
        code_name="",
        classes=names,
        count=count,
        batch=BATCH,
        size=size,
        codec=codec,
        top_k=100,
        images_digest=array_digest(pixel.repeat(classes, 0)),
        dataset_digest="",
        spec={},
        view_settings=asdict(settings(count, size)),
        teachers=[],
        versions=library_versions(),
    )
    create_store(folder, header, images, [])
    return LabelStore(folder)


def our_write(store: LabelStore, logits: Logits, drawn: list[View]) -> None:
    images = store.header.count
    for view, geometry in enumerate(drawn):
        with store.claim(view):
            store.write(view, geometry, logits[view * images : (view + 1) * images])


def our_load(folder: Path, views: int) -> dict[str, NDArray[np.generic]]:
    store = LabelStore(folder)
    return store.read([*store.codec.dtypes, *GEOMETRY], views)


def our_pool(folder: Path, codec: str, views: int) -> dict[str, torch.Tensor]:
    parts = our_load(folder, views)
    return {name: torch.from_numpy(parts[name]).flatten(0, 1) for name in codec_of(codec).dtypes}


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(title: str, logits: Logits, views: int, size: int, folder: Path) -> dict[str, dict[str, float]]:
    """Bytes, seconds and error of every codec and of the peers' format; all take turns, medians are kept."""
    images, classes = len(logits) // views, logits.shape[1]
    drawn = [draw_view(settings(images, size), view) for view in range(views)]
    times: dict[str, dict[str, list[float]]] = {name: {"write": [], "load": []} for name in ("peers", *codec_names())}
    for turn in range(ROUNDS):
        peers = folder / f"{title}-peers-{turn}"
        times["peers"]["write"].append(timed(lambda p=peers: peer_write(p, logits, drawn, size)))
        times["peers"]["load"].append(timed(lambda p=peers: peer_load(p, views)))
        for codec in codec_names():
            path = folder / f"{title}-{codec}-{turn}.zarr"
            store = our_store(path, codec, classes, images, size)
            times[codec]["write"].append(timed(lambda s=store: our_write(s, logits, drawn)))
            times[codec]["load"].append(timed(lambda p=path: our_load(p, views)))
    rows = {name: {kind: statistics.median(entry) for kind, entry in spent.items()} for name, spent in times.items()}
    half = torch.softmax(torch.from_numpy(logits) / T, dim=1).half().double()
    half /= half.sum(dim=1, keepdim=True)  # compare as distributions: the rounded rows do not quite add up to one
    first = folder / f"{title}-peers-0"
    rows["peers"] |= {
        "bytes": tree_bytes(first),
        "kl": mean_kl(logits, torch.log(half)),
        "batch_us": peer_batch(first, views),
    }
    for codec in codec_names():
        path = folder / f"{title}-{codec}-0.zarr"
        pool = our_pool(path, codec, views)
        log_q = torch.log_softmax(codec_of(codec).decode(pool, classes).double() / T, dim=1)
        rows[codec]["bytes"] = tree_bytes(path) - tree_bytes(path / "images")
        rows[codec]["kl"] = mean_kl(logits, log_q) if codec != "topk" else float("nan")  # dropped classes: no KL
        rows[codec]["batch_us"] = our_batch(pool, codec, classes)
    return rows


def our_batch(pool: dict[str, torch.Tensor], codec: str, classes: int) -> float:
    """Microseconds to have one random stored batch's probabilities from a loaded pool."""
    starts = np.random.default_rng(1).integers(0, len(pool["q"]) // BATCH, 500) * BATCH

    def work() -> None:
        for i in starts:
            torch.softmax(codec_of(codec).decode({n: a[i : i + BATCH] for n, a in pool.items()}, classes) / T, dim=1)

    return timed(work) / len(starts) * 1e6


def peer_batch(path: Path, views: int) -> float:
    pool = [batch for epoch in peer_load(path, views) for batch in epoch]
    chosen = np.random.default_rng(1).integers(0, len(pool), 500)
    return timed(lambda: [pool[i][5].float() for i in chosen]) / 500 * 1e6


def table(title: str, rows: dict[str, dict[str, float]], labels: int) -> str:
    """Markdown: bytes and error of every format, and how many times faster than the peers' it is."""
    peers = rows["peers"]
    lines = [
        f"**{title}, {labels:,} labels**",
        "",
        "| format | bytes per label | of peers' | write | load all | one batch | mean KL |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in rows.items():
        write, load = peers["write"] / row["write"], peers["load"] / row["load"]
        cells = [
            f"{row['bytes'] / labels:.1f}",
            f"{row['bytes'] / peers['bytes']:.3f}",
            f"{write:.1f}x",
            f"{load:.1f}x",
        ]
        kl = "–" if np.isnan(row["kl"]) else f"{row['kl']:.2e}"
        lines.append(f"| {name} | {' | '.join(cells)} | {row['batch_us']:.0f} us | {kl} |")
    return "\n".join([*lines, "", ""])


def main() -> None:
    torch.set_num_threads(2)
    result: dict[str, float] = {}
    tables = ""
    c1000 = imagenet_like(20000)
    c100, source = real_logits(20, 1000)
    made = Path("results/bench/labels.json")
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent) as name:
        for title, logits, views, size in (("c1000", c1000, 10, 224), ("c100", c100, 20, 32)):
            rows = compare(title, logits, views, size, Path(name))
            name_of = "ImageNet-like" if title == "c1000" else source
            tables += table(f"C = {logits.shape[1]} ({name_of})", rows, len(logits))
            u8, i16, peers = rows["u8"], rows["i16"], rows["peers"]
            suffix = "" if title == "c1000" else "_c100"
            result |= {
                f"bytes_ratio_{title}": u8["bytes"] / peers["bytes"],
                f"kl_uniform_{title}": kl_uniform(logits),
                f"kl_u8{suffix}": u8["kl"],
                f"kl_i16_over_fp16{suffix}": i16["kl"] / peers["kl"],
                f"load_speedup{suffix}": peers["load"] / u8["load"],
                f"write_speedup{suffix}": peers["write"] / u8["write"],
            }
    write_json(made, result)
    facts = f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, {os.cpu_count()} cores, " + ", ".join(
        f"{name} {version}" for name, version in library_versions().items()
    )
    write_text(Path("results/bench/labels.md"), f"{tables}{facts}\n")
    print(f"\n{tables}{facts}\n\nresults/bench/labels.json", json.dumps(result, indent=1), sep="\n")


if __name__ == "__main__":
    main()
