"""Image sets for people and other tools: grades, previews, `hald images`, folders made elsewhere."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from conftest import DATA, TEACHER, TINY_DEMO, copy_known, images_spec, make
from hald.cli.main import main
from hald.datasets.decode import decode
from hald.datasets.reader import open_dataset
from hald.datasets.sources import parquet
from hald.datasets.spec import DatasetSpec
from hald.errors import UserError
from hald.squeeze.teacher import load_teacher
from hald.synthesis import exchange
from hald.synthesis.class_folders import find_images, folder_digest
from hald.synthesis.image_set import open_set
from hald.synthesis.image_set_writer import grade, mean_cosine, penultimate

CPU = torch.device("cpu")


def test_mean_cosine_by_hand() -> None:
    # pairs: (x, x) 1, (x, y) 0 twice
    assert float(mean_cosine(torch.tensor([[2.0, 0.0], [5.0, 0.0], [0.0, 3.0]]))) == pytest.approx(1 / 3)
    assert float(mean_cosine(torch.tensor([[1.0, 1.0], [1.0, 0.0]]))) == pytest.approx(1 / np.sqrt(2))
    assert float(mean_cosine(torch.tensor([[1.0, 1.0]]))) == pytest.approx(0)


def test_penultimate_features_are_the_networks_own(digits: Path, teacher: Path) -> None:
    model, _ = load_teacher(teacher, open_dataset(digits).classes, 0.0, CPU)
    x = torch.randn(2, 3, 32, 32)
    logits, features = penultimate(model, x)
    assert torch.equal(features, model.features(x))
    assert torch.equal(logits, model(x))


def test_a_set_is_graded_by_its_teacher(digits: Path, teacher: Path, tmp_path: Path) -> None:
    make(images_spec(ipc=3, teachers=(TEACHER,)), tmp_path / "set.zarr", {DATA: digits, TEACHER: teacher})
    images, record = open_set(tmp_path / "set.zarr"), open_set(tmp_path / "set.zarr").record()
    model, about = load_teacher(teacher, images.classes, 0.0, CPU)
    x = (torch.from_numpy(images.images()) / 255 - 0.3) / 0.3
    with torch.no_grad():
        hits = (model(x).argmax(dim=1).numpy() == np.repeat(np.arange(10), 3)).mean()
        features = model.features(x).double().numpy().reshape(10, 3, -1)
    unit = features / np.linalg.norm(features, axis=2, keepdims=True)
    pairs = [unit[c, i] @ unit[c, j] for c in range(10) for i in range(3) for j in range(i)]
    assert record["classified"] == pytest.approx(100 * hits, abs=1e-3)
    assert record["diversity"] == pytest.approx(np.mean(pairs), abs=1e-5)
    assert record["teachers"][0]["sha256"] == about["sha256"]
    assert record["spec"]["method"] == record["method"] == "real"
    with Image.open(tmp_path / "set.zarr/preview.png") as sheet:
        assert sheet.size == (110 + 3 * 66, 10 * 66)
        shown = np.asarray(sheet)[0:64:2, 110:174:2]
    assert np.array_equal(shown, images.images()[0].transpose(1, 2, 0))


def test_a_single_image_per_class_has_no_diversity(digits: Path, teacher: Path, tmp_path: Path) -> None:
    make(images_spec(ipc=1), tmp_path / "set.zarr", {DATA: digits})
    assert grade(open_set(tmp_path / "set.zarr"), teacher, 0.0, CPU)["diversity"] is None


@pytest.fixture
def here(tmp_path: Path, real_set: Path, digits: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with one image set and its dataset."""
    copy_known(tmp_path / "config")
    (tmp_path / "config/config.yaml").write_text("experiments: [tiny]\n")
    (tmp_path / "config/experiments/tiny.yaml").write_text(TINY_DEMO)
    shutil.copytree(real_set, tmp_path / "results/images/digits/real_0123456789.zarr")
    shutil.copytree(digits, tmp_path / "results/datasets/digits")
    monkeypatch.chdir(tmp_path)
    return tmp_path


SET, DATASET = "results/images/digits/real_0123456789.zarr", "results/datasets/digits"


def test_ls_and_info(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["images", "ls"]) == 0
    assert "digits/real_0123456789.zarr" in capsys.readouterr().out
    assert main(["images", "info", SET]) == 0
    out = capsys.readouterr().out
    assert "20, 2 per class" in out
    assert "preview.png" in out
    assert main(["images", "info", "nowhere.zarr"]) == 1


def test_folder_round_trip(here: Path, teacher: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["images", "export", SET, "out", "--format", "imagefolder"]) == 0
    assert "out: 20 images" in capsys.readouterr().out
    arguments = ["images", "import", "out", "--dataset", DATASET, "--ipc", "2", "--to", "new.zarr"]
    assert main([*arguments, "--teacher", str(teacher)]) == 0
    assert np.array_equal(open_set(Path("new.zarr")).images(), open_set(Path(SET)).images())
    record = open_set(Path("new.zarr")).record()
    assert (record["method"], record["class_order"], record["resized"]) == ("external", "names", 0)
    assert record["classified"] > 0
    assert main(arguments) == 1
    assert "exists already" in capsys.readouterr().err
    assert main(["images", "export", SET, "out", "--format", "imagefolder"]) == 1
    assert "not empty" in capsys.readouterr().err


def test_a_set_that_is_not_finished_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no finished image set at .*half\.zarr; `hald images ls` lists"):
        open_set(tmp_path / "half.zarr")


def test_parquet_in_several_row_groups_is_as_hugging_face_describes_images(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read with pyarrow alone: 20 images in groups of 8."""
    monkeypatch.setattr(exchange, "ROW_GROUP", 8)
    assert main(["images", "export", SET, "out", "--format", "parquet"]) == 0
    file = pq.ParquetFile("out/train.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [8, 8, 4]
    features = json.loads(file.schema_arrow.metadata[b"huggingface"])["info"]["features"]
    assert features == {
        "image": {"_type": "Image"},
        "label": {"names": [str(c) for c in range(10)], "_type": "ClassLabel"},
    }
    rows = file.read().to_pylist()
    assert [row["label"] for row in rows] == [c for c in range(10) for _ in range(2)]
    pixels = [np.asarray(Image.open(io.BytesIO(row["image"]["bytes"]))) for row in rows]
    assert np.array_equal(np.stack(pixels).transpose(0, 3, 1, 2), open_set(Path(SET)).images())


def test_parquet_is_read_by_our_own_reader(here: Path) -> None:
    assert main(["images", "export", SET, "out", "--format", "parquet"]) == 0
    shutil.copy("out/train.parquet", "out/test.parquet")
    spec = DatasetSpec("x", "parquet", None, "train", "test", None, 10, 32, None, "out", False, 1)
    raw = parquet.read(spec)
    images = open_set(Path(SET))
    assert raw.classes == images.classes
    assert raw.train.labels.tolist() == np.repeat(np.arange(10), 2).tolist()
    pixels = np.stack([decode(raw.train.read(i), "") for i in range(20)]).transpose(0, 3, 1, 2)
    assert np.array_equal(pixels, images.images())


def numbered(root: Path, pattern: str, classes: int = 10, ipc: int = 2, size: int = 32, suffix: str = "png") -> Path:
    """A released layout whose image k of class c is a flat grey of 20 c + k."""
    for c in range(classes):
        for k in range(ipc):
            path = root / pattern.format(c=c) / f"class{c:03d}_id{k:03d}.{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (size, size), (20 * c + k,) * 3).save(path)
    return root


@pytest.mark.parametrize("pattern", ["new{c:03d}", "{c:05d}"])
def test_released_layouts_are_read_by_number(here: Path, pattern: str) -> None:
    numbered(here / "out", pattern, size=48)
    arguments = ["images", "import", "out", "--dataset", DATASET, "--ipc", "2", "--to", "new.zarr"]
    assert main(arguments) == 0
    images = open_set(Path("new.zarr"))
    assert images.images()[:, 0, 5, 5].tolist() == [20 * c + k for c in range(10) for k in range(2)]
    assert images.record()["class_order"] == "numbers"
    assert images.record()["resized"] == 20  # 48 px -> 32 px, and the record says so


def test_images_of_a_class_are_in_the_order_of_their_ids(tmp_path: Path) -> None:
    for k in (10, 9, 100):
        path = tmp_path / f"new000/class000_id{k}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (2, 2)).save(path)
    found = find_images(tmp_path, 1, 3)
    assert [path.stem for path in found.files[0]] == ["class000_id9", "class000_id10", "class000_id100"]


def test_folders_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    root = numbered(tmp_path / "out", "new{c:03d}", classes=3)
    with pytest.raises(UserError, match="has no folder for class number 3 \\(1 of 4 are missing\\)"):
        find_images(root, 4, 2)
    with pytest.raises(UserError, match="has 3 class folders, the dataset has 2 classes"):
        find_images(root, 2, 2)
    with pytest.raises(UserError, match="new000 has 2 images, IPC 5 needs 5"):
        find_images(root, 3, 5)
    with pytest.raises(UserError, match="there is no folder of images at"):
        find_images(tmp_path / "nowhere", 3, 2)
    (root / "new000").rename(root / "cat")
    (root / "new001").rename(root / "dog")
    (root / "new002").rename(root / "emu")
    assert find_images(root, 3, 2, ["emu", "cat", "dog"]).files[0][0].parent.name == "emu"
    with pytest.raises(UserError, match="has no folder for class 'fox' \\(1 of 4 are missing\\)"):
        find_images(root, 4, 2, ["cat", "dog", "emu", "fox"])
    with pytest.raises(UserError, match="has 3 class folders \\(first 'cat'\\), the dataset has 4 classes"):
        find_images(root, 4, 2)


def test_the_digest_of_a_folder_is_of_names_and_pixels(tmp_path: Path) -> None:
    a, b = (numbered(tmp_path / name, "{c:05d}", classes=2) for name in ("a", "b"))
    assert folder_digest(a) == folder_digest(b)
    Image.new("RGB", (32, 32), (9, 9, 9)).save(b / "00001/class001_id001.png")
    assert folder_digest(a) != folder_digest(b)
    assert folder_digest(tmp_path / "nowhere") is None
