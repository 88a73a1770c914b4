"""Datasets: every reader on small real files, and what happens to bad ones."""

import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as tv

from hald.datasets.decode import evaluation_image
from hald.datasets.prepare import prepare
from hald.datasets.raw import read_raw
from hald.datasets.reader import PreparedDataset, open_dataset
from hald.datasets.spec import DatasetSpec
from hald.datasets.training_crops import CropRequest, Crops
from hald.errors import UserError
from hald.numerics.random_streams import uniforms
from hald.numerics.views import CROP_WIDTH


def spec(source: str, root: Path | None, **changes: object) -> DatasetSpec:
    values = {
        "name": "small",
        "source": source,
        "variant": None,
        "train": "train",
        "test": "test",
        "subset": None,
        "classes": 3,
        "size": 16,
        "resize": None,
        "root": str(root) if root else None,
        "download": False,
        "per_class": 2,
    }
    return DatasetSpec(**(values | changes))  # type: ignore[arg-type]


def load(tmp_path: Path, dataset: DatasetSpec) -> PreparedDataset:
    prepare(dataset, read_raw(dataset), tmp_path / "out", tmp_path / "partial", workers=2)
    return open_dataset(tmp_path / "out")


def pixels(label: int, number: int, size: tuple[int, int] = (16, 16)) -> np.ndarray:
    return np.random.default_rng([label, number]).integers(0, 256, (*size, 3), dtype=np.uint8)


def folder_tree(root: Path, per_class: int = 4, size: tuple[int, int] = (16, 16), suffix: str = "png") -> Path:
    for split in ("train", "test"):
        for label, name in enumerate(["ant", "bee", "cat"]):
            (root / split / name).mkdir(parents=True)
            for number in range(per_class):
                Image.fromarray(pixels(label, number, size)).save(
                    root / split / name / f"{number}.{suffix}", quality=95
                )
    return root


def test_digits(digits: Path) -> None:
    data = open_dataset(digits)
    assert data.classes == [str(i) for i in range(10)]
    assert (len(data.train), len(data.test)) == (1297, 500)
    assert data.train.pixels is not None
    assert data.train.pixels.shape == (1297, 3, 32, 32)
    assert data.train.pixels.max() == 255


def test_imagefolder_is_packed_when_sizes_are_right(tmp_path: Path) -> None:
    data = load(tmp_path, spec("imagefolder", folder_tree(tmp_path / "raw")))
    assert data.classes == ["ant", "bee", "cat"]
    assert data.train.storage == "packed"
    assert data.train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert np.array_equal(data.train.read(5), pixels(1, 1))
    assert data.train.of_class(2).tolist() == [8, 9, 10, 11]


def test_imagefolder_of_other_sizes_stays_in_files(tmp_path: Path) -> None:
    root = folder_tree(tmp_path / "raw", size=(40, 30), suffix="jpg")
    data = load(tmp_path, spec("imagefolder", root, resize=20))
    assert data.train.storage == "files"
    assert data.train.pixels is None
    assert data.train.read(0).shape == (40, 30, 3)
    assert data.test.pixels is not None
    assert data.test.pixels.shape == (12, 3, 16, 16)


@pytest.mark.parametrize("shape", [(40, 30), (30, 40), (17, 90), (32, 32)])
def test_evaluation_image_is_resize_and_centre_crop(shape: tuple[int, int]) -> None:
    image = pixels(0, 0, shape)
    expected = tv.center_crop(tv.resize(Image.fromarray(image), 20), [16, 16])
    assert np.array_equal(evaluation_image(image, 16, 20, "x"), np.asarray(expected))


def test_tiny_imagenet_layout(tmp_path: Path) -> None:
    root = tmp_path / "tiny"
    for label, name in enumerate(["n01", "n02", "n03"]):
        (root / "train" / name / "images").mkdir(parents=True)
        for number in range(2):
            Image.fromarray(pixels(label, number)).save(root / "train" / name / "images" / f"{name}_{number}.png")
    (root / "val/images").mkdir(parents=True)
    lines = []
    for number, label in enumerate([2, 0, 1]):
        Image.fromarray(pixels(label, number)).save(root / "val/images" / f"val_{number}.png")
        lines.append(f"val_{number}.png\tn0{label + 1}\t0\t0\t62\t62")
    (root / "val/val_annotations.txt").write_text("\n".join(lines) + "\n")
    data = load(tmp_path, spec("tiny_imagenet", root))
    assert data.classes == ["n01", "n02", "n03"]
    assert data.test.labels.tolist() == [2, 0, 1]
    assert np.array_equal(data.test.read(0), pixels(2, 0))


def png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def parquet_files(root: Path, size: tuple[int, int] = (16, 16)) -> Path:
    names = ["ant", "bee", "cat"]
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": names}}
    root.mkdir()
    for split in ("train", "test"):
        labels = [2, 0, 1, 1, 0, 2]
        rows = [{"bytes": png(pixels(label, i, size)), "path": None} for i, label in enumerate(labels)]
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        table = pa.table({"image": pa.array(rows, kind), "label": pa.array(labels, pa.int64())})
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        pq.write_table(table, root / f"{split}.parquet", row_group_size=2)
    return root


def test_parquet(tmp_path: Path) -> None:
    data = load(tmp_path, spec("parquet", parquet_files(tmp_path / "raw")))
    assert data.classes == ["ant", "bee", "cat"]
    assert data.train.labels.tolist() == [2, 0, 1, 1, 0, 2]
    assert np.array_equal(data.train.read(3), pixels(1, 3))


def test_parquet_of_other_sizes_becomes_a_blob(tmp_path: Path) -> None:
    data = load(tmp_path, spec("parquet", parquet_files(tmp_path / "raw", (30, 24)), resize=18))
    assert data.train.storage == "blob"
    assert np.array_equal(data.train.read(4), pixels(0, 4, (30, 24)))


def test_a_subset_keeps_class_order_and_renumbers(tmp_path: Path) -> None:
    root = parquet_files(tmp_path / "raw")
    data = load(tmp_path, spec("parquet", root, subset=("cat", "ant"), classes=2))
    assert data.classes == ["ant", "cat"]
    assert data.train.labels.tolist() == [1, 0, 0, 1]
    assert np.array_equal(data.train.read(0), pixels(2, 0))


def test_the_digest_follows_the_content(tmp_path: Path) -> None:
    root = parquet_files(tmp_path / "raw")
    first = load(tmp_path / "a", spec("parquet", root)).digest
    again = load(tmp_path / "b", spec("parquet", root)).digest
    other = load(tmp_path / "c", spec("parquet", root, subset=("cat", "ant"), classes=2)).digest
    assert first == again != other


@pytest.mark.parametrize("resize", [None, 16])  # packed: every pixel counts; files that stay there: names and sizes
@pytest.mark.parametrize("changed", ["train/bee/1.png", "test/cat/0.png"])
def test_the_digest_follows_every_image(changed: str, resize: int | None, tmp_path: Path) -> None:
    root = folder_tree(tmp_path / "raw", per_class=2)
    before = load(tmp_path / "a", spec("imagefolder", root, resize=resize)).digest
    image = np.array(Image.open(root / changed))
    if resize:
        image[:] = 7
    image[3, 5, 1] ^= 1
    Image.fromarray(image).save(root / changed)
    assert load(tmp_path / "b", spec("imagefolder", root, resize=resize)).digest != before


def test_decoded_crops_equal_rendered_crops(tmp_path: Path) -> None:
    """Large datasets are cropped by PIL in workers, packed ones by our renderer: the same pixels within rounding."""
    root = folder_tree(tmp_path / "raw", size=(16, 16))
    packed = load(tmp_path / "a", spec("imagefolder", root))
    files = load(tmp_path / "b", spec("imagefolder", root, resize=16))
    draws = uniforms("t", 0, 0, 12, CROP_WIDTH)
    request = CropRequest(np.arange(12), draws, np.arange(12) % 2 == 0)
    device = torch.device("cpu")
    ours, theirs = (
        next(iter(Crops(data.train, 16, (0.2, 1.0), (0.75, 4 / 3), 0, device).batches([request])))
        for data in (packed, files)
    )
    assert (ours - theirs).abs().max() < 1.5 / 255


def test_padded_crops_shift_the_image(tmp_path: Path) -> None:
    data = load(tmp_path, spec("imagefolder", folder_tree(tmp_path / "raw")))
    draws = np.zeros((1, CROP_WIDTH))  # offset (0, 0): the image moves down and right by the padding
    crops = Crops(data.train, 16, (1.0, 1.0), (1.0, 1.0), 0, torch.device("cpu"))
    out = next(crops.padded([CropRequest(np.array([3]), draws, np.array([False]))], padding=4))[0]
    expected = torch.from_numpy(pixels(0, 3).copy()).permute(2, 0, 1)[:, :12, :12] / 255
    assert torch.equal(out[:, 4:, 4:], expected)
    assert out[:, :4].abs().sum() == out[:, :, :4].abs().sum() == 0


def refuse(tmp_path: Path, dataset: DatasetSpec, match: str) -> None:
    with pytest.raises(UserError, match=match):
        prepare(dataset, read_raw(dataset), tmp_path / "out", tmp_path / "partial")
    assert not (tmp_path / "out").exists()


def test_bad_data_is_named(tmp_path: Path) -> None:
    root = folder_tree(tmp_path / "raw", per_class=3)
    refuse(
        tmp_path, spec("imagefolder", tmp_path / "nowhere"), r"folder .*nowhere does not exist; set datasets.small.root"
    )
    refuse(tmp_path, spec("imagefolder", None), "has no root folder")
    refuse(tmp_path, spec("imagefolder", Path("$HALD_NOT_SET/x")), "that variable is not set")
    refuse(tmp_path, spec("imagefolder", root, per_class=4), "class 'ant' has 3 training images, .* need 4")
    refuse(tmp_path, spec("imagefolder", root, classes=5), "3 classes found .*, the config says 5")
    refuse(tmp_path, spec("imagefolder", root, size=32), "is 16 x 16, the dataset's size is 32 x 32")
    refuse(tmp_path, spec("imagefolder", root, subset=("dog",)), "subset names class 'dog'")
    (root / "train/bee/1.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    refuse(tmp_path, spec("imagefolder", root), r"cannot decode image .*train/bee/1.png")
    shutil.rmtree(root / "test/cat")
    refuse(tmp_path, spec("imagefolder", root), "class folder 'cat' is in only one of")
    (root / "train/cat").rename(root / "test/cat")
    refuse(tmp_path, spec("imagefolder", root), "class folder 'cat' is in only one of")


@pytest.mark.parametrize("suffix", ["jpg", "png"])
@pytest.mark.parametrize("limit", [10**9, 0])
def test_a_cut_off_file_is_named(suffix: str, limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In small datasets because everything is decoded once, in large ones because the end mark is looked for."""
    monkeypatch.setattr("hald.datasets.prepare.DECODE_ALL", limit)
    root = folder_tree(tmp_path / "raw", size=(40, 30), suffix=suffix)
    victim = root / f"train/cat/2.{suffix}"
    victim.write_bytes(victim.read_bytes()[:-200])
    refuse(tmp_path, spec("imagefolder", root, resize=20), f"cat/2.{suffix}")


def test_a_file_that_breaks_later_is_named_by_the_worker(tmp_path: Path) -> None:
    root = folder_tree(tmp_path / "raw", size=(40, 30))
    data = load(tmp_path, spec("imagefolder", root, resize=20))
    (root / "train/bee/1.png").write_bytes(b"gone")
    request = CropRequest(np.arange(12), uniforms("t", 0, 0, 12, CROP_WIDTH), np.zeros(12, dtype=bool))
    crops = Crops(data.train, 16, (0.2, 1.0), (0.75, 4 / 3), 1, torch.device("cpu"))
    with pytest.raises(UserError, match=r"^cannot decode image .*bee/1.png"):
        list(crops.batches([request]))


def test_cifar_without_network_says_what_to_do(tmp_path: Path) -> None:
    refuse(tmp_path, spec("torchvision", tmp_path, variant="CIFAR10", classes=10), "copy the extracted archive there")
    refuse(tmp_path, spec("torchvision", tmp_path, variant="MNIST"), "variant is 'MNIST', known are CIFAR10, CIFAR100")


def test_parquet_without_class_names_says_so(tmp_path: Path) -> None:
    root = parquet_files(tmp_path / "raw")
    table = pq.read_table(root / "train.parquet").replace_schema_metadata({})
    pq.write_table(table, root / "train.parquet")
    refuse(tmp_path, spec("parquet", root), "no `huggingface` entry")


@pytest.mark.skipif(not os.environ.get("HALD_DATA"), reason="HALD_DATA is not set: no real datasets here")
def test_real_cifar100(tmp_path: Path) -> None:
    root = Path(os.environ["HALD_DATA"]) / "cifar100"
    data = load(tmp_path, spec("parquet", root, classes=2, subset=2, size=32, per_class=500))
    assert data.classes == ["apple", "aquarium_fish"]
    assert np.bincount(data.train.labels).tolist() == [500, 500]
    assert np.bincount(data.test.labels).tolist() == [100, 100]
