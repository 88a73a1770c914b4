"""Import and export of the released label format, against an independent reader and writer of it (released_reader)."""

import errno
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zarr
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from conftest import labels_spec, make_labels
from hald.cli.main import main
from hald.errors import UserError
from hald.labels.describe import describe
from hald.labels.released_export import box_fractions, export_labels
from hald.labels.released_import import import_labels
from hald.labels.store import LabelStore
from hald.labels.verify import verify_store
from hald.numerics.views import render_batches
from hald.squeeze.teacher import load_teacher
from released_reader import image_folder, read_epoch, write_epoch

VIEWS = 5
GREY = 1 / 255
WEIGHT = 4.0  # of the teacher: its labels at T = 20 are then far enough from uniform to show a wrong temperature


@given(st.sampled_from([32, 64, 128, 224, 256]), st.integers(0, 256))
def test_exported_boxes_survive_truncation_and_rounding(size: int, pixel: int) -> None:
    pixel = min(pixel, size)
    half = box_fractions(np.array([[pixel] * 4]), (size, size))
    assert half.dtype == np.float16
    assert [int(float(value) * size) for value in half[0]] == [pixel] * 4  # as the released reader decodes
    assert np.rint(half.astype(np.float64) * size).astype(int).tolist() == [[pixel] * 4]


@dataclass(frozen=True)
class Export:
    """A store of five views (batches of 8, 8 and 4), the directory exported from it, and what the reader finds."""

    store: LabelStore
    folder: Path
    batches: list[tuple[Tensor, Tensor]]  # pixels and probabilities


@pytest.fixture(scope="module", params=["running", "batch"])
def exported(
    request: pytest.FixtureRequest, real_set: Path, teacher: Path, tmp_path_factory: pytest.TempPathFactory
) -> Export:
    folder = tmp_path_factory.mktemp("exported")
    spec = labels_spec(codec="f16", flip=0.5, bn_mode=request.param, weights=(WEIGHT,))
    store = LabelStore(make_labels(spec, real_set, [teacher], folder / "s.zarr", range(VIEWS)))
    export_labels(store, folder / "out")
    images = image_folder(folder / "out/images")
    batches = [batch for epoch in range(VIEWS) for batch in read_epoch(folder / "out", epoch, images, 32)]
    return Export(store, folder / "out", batches)


def test_exported_labels_are_the_teachers_answers_to_the_pixels_read(exported: Export) -> None:
    """softmax at T = 20 to half precision, and the same class for at least 99 % of the crops."""
    store = exported.store
    model, record = load_teacher(store.teacher(0), store.header.classes, 0.0, torch.device("cpu"))
    model.train(store.header.spec["bn_mode"] == "batch")  # each batch read is normalised by itself
    mean, std = (torch.tensor(record[name]).view(3, 1, 1) for name in ("mean", "std"))
    same = []
    for pixels, stored in exported.batches:
        with torch.no_grad():
            answer = WEIGHT * model((pixels - mean) / std)
        torch.testing.assert_close(stored.float(), (answer / 20).softmax(dim=1), rtol=2**-10, atol=0)
        same += (stored.argmax(dim=1) == answer.argmax(dim=1)).tolist()
    assert len(same) == 100
    assert np.mean(same) >= 0.99


def test_exported_pixels_are_within_one_grey_level_of_ours(exported: Export) -> None:
    store = exported.store
    images, rows = torch.from_numpy(store.images()), np.arange(20)
    ours = [render_batches(images, store.drawn(view), rows, rows // 8, 32) for view in range(VIEWS)]
    assert [len(pixels) for pixels, _ in exported.batches[:3]] == [8, 8, 4]
    assert (torch.cat([pixels for pixels, _ in exported.batches]) - torch.cat(ours)).abs().max() <= GREY


def test_exported_views_have_flips_and_rectangles_that_are_not_square(exported: Export) -> None:
    """What the two tests above would not notice without: flips of both kinds, rectangles wider or higher than long."""
    batches = [batch for epoch in range(VIEWS) for batch in torch.load(exported.folder / f"epoch_{epoch}.tar")]
    flips = torch.cat([batch[1] for batch in batches]).float()
    assert 0.35 < flips.mean() < 0.65  # of 100 with p = 0.5
    sides = np.array([[b[4][2] - b[4][0], b[4][3] - b[4][1]] for b in batches])
    assert (sides[:, 0] < sides[:, 1]).sum() >= 3
    assert (sides[:, 0] > sides[:, 1]).sum() >= 3


def test_exported_files_have_the_released_layout(exported: Export) -> None:
    """File names, list layout, types and image order."""
    folder = exported.folder
    batches = torch.load(folder / "epoch_1.tar", weights_only=True)
    assert [len(batch[0]) for batch in batches] == [8, 8, 4]
    box, flip, partner, share, rectangle, labels = batches[0]
    types = (box.dtype, flip.dtype, partner.dtype, labels.dtype)
    assert types == (torch.float16, torch.bool, torch.int64, torch.float16)
    assert isinstance(share, float)
    kept = zarr.open_group(exported.store.folder, mode="r")["lam"][1]
    assert [batch[3] for batch in batches] == kept.tolist()  # CutMix's draw, not what is left after clipping
    assert len(set(kept.tolist())) == 3
    assert [type(edge) for edge in rectangle] == [int] * 4
    assert sorted(path.name for path in folder.glob("*.tar")) == sorted(f"epoch_{epoch}.tar" for epoch in range(VIEWS))
    order = torch.load(folder / "sampler_indices_dict.pt", weights_only=True)
    assert sorted(order["1"]) == list(range(20))
    files = sorted((folder / "images").rglob("*.png"))
    images = np.stack([np.asarray(Image.open(file)).transpose(2, 0, 1) for file in files])
    assert np.array_equal(images, exported.store.images())
    assert files[3].relative_to(folder / "images") == Path("new001/class001_id001.png")
    assert (folder / "format.txt").read_text() == "cut: tlbr\n"


@pytest.fixture(scope="module")
def store(real_set: Path, teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two views that no test here writes to."""
    return make_labels(labels_spec(), real_set, [teacher], tmp_path_factory.mktemp("labels") / "s.zarr", range(2))


CLASSES = ["a", "b", "c", "d", "e"]
SIDE = 56  # no power of two: most of its fractions are not exact in half precision
RECTANGLES = [[(5, 10, 40, 30), (0, 20, 56, 33), (17, 0, 22, 56)], [(30, 2, 56, 9), (7, 7, 7, 7), (1, 40, 50, 56)]]


@dataclass(frozen=True)
class Written:
    """A directory by the independent writer: ten images, two label epochs in batches of 4, 4 and 2."""

    folder: Path
    images: np.ndarray
    orders: list[list[int]]
    epochs: list[list[Any]]  # batches: boxes in pixels, flips, partners, share, rectangle, logits
    seen: list[list[Tensor]]  # pixels that the writer's teacher was fed with, by epoch and batch


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder, rng = tmp_path_factory.mktemp("written"), np.random.default_rng(0)
    images = rng.integers(256, size=(10, 3, SIDE, SIDE), dtype=np.uint8)
    orders = [rng.permutation(10).tolist() for _ in RECTANGLES]
    epochs = [
        [_drawn(rng, count, rectangle) for count, rectangle in zip((4, 4, 2), rectangles, strict=True)]
        for rectangles in RECTANGLES
    ]
    pixels = torch.from_numpy(images) / 255
    seen = [write_epoch(folder, epoch, pixels, orders[epoch], epochs[epoch]) for epoch in range(2)]
    return Written(folder, images, orders, epochs, seen)


def _drawn(rng: np.random.Generator, count: int, rectangle: tuple[int, ...]) -> list[Any]:
    """One batch of any crops."""
    lengths = rng.integers(8, SIDE + 1, size=(count, 2))
    boxes = np.concatenate([rng.integers(SIDE + 1 - lengths), lengths], axis=1).tolist()
    flips, partners = torch.arange(count) % 2 == 0, torch.from_numpy(rng.permutation(count))
    logits = torch.from_numpy(rng.normal(scale=20, size=(count, len(CLASSES))))
    return [boxes, flips, partners, rng.random(), rectangle, logits]


@pytest.fixture(scope="module")
def imported(written: Written, tmp_path_factory: pytest.TempPathFactory) -> LabelStore:
    path = tmp_path_factory.mktemp("imported") / "s.zarr"
    import_labels(written.folder, written.images, CLASSES, path)
    return LabelStore(path)


def test_imported_geometry_is_what_was_written(imported: LabelStore, written: Written) -> None:
    assert list(verify_store(imported.folder)) == []
    assert (imported.views(), imported.header.batch) == ([0, 1], 4)
    for view in range(2):
        drawn = imported.drawn(view)
        boxes, flips, partners, shares, rectangles, _ = zip(*written.epochs[view], strict=True)
        assert drawn.image.tolist() == written.orders[view]
        assert drawn.box.tolist() == [box for batch in boxes for box in batch]
        assert drawn.flip.tolist() == torch.cat(flips).tolist()
        assert drawn.partner.tolist() == torch.cat(partners).tolist()
        assert drawn.lam.tolist() == list(shares)
        assert drawn.cut.tolist() == [list(rectangle) for rectangle in rectangles]


def test_imported_pixels_are_those_that_the_writers_teacher_saw(imported: LabelStore, written: Written) -> None:
    images, rows = torch.from_numpy(imported.images()), np.arange(10)
    for view, seen in enumerate(written.seen):
        ours = render_batches(images, imported.drawn(view), rows, rows // 4, SIDE)
        assert (ours - torch.cat(seen)).abs().max() <= GREY


def test_imported_labels_are_those_written(imported: LabelStore, written: Written) -> None:
    """To half precision of probabilities and half a step of i16, 1/160, of logits."""
    for view in range(2):
        rows = {name: torch.from_numpy(array) for name, array in imported.rows(view)}
        given = torch.cat([batch[5] for batch in written.epochs[view]])
        ours = imported.codec.decode(rows, 5).double()
        torch.testing.assert_close((ours / 20).softmax(dim=1), (given / 20).softmax(dim=1), rtol=2e-3, atol=0)


def test_export_of_an_imported_store_reads_as_what_was_written(
    imported: LabelStore, written: Written, tmp_path: Path
) -> None:
    """Boxes whose fractions are not exact are truncated by the reader, and must not lose a pixel."""
    export_labels(imported, tmp_path / "out")
    images = image_folder(tmp_path / "out/images")
    for epoch in range(2):
        found = list(read_epoch(tmp_path / "out", epoch, images, SIDE))
        for (pixels, labels), seen, batch in zip(found, written.seen[epoch], written.epochs[epoch], strict=True):
            assert torch.equal(pixels, seen)
            torch.testing.assert_close(labels.double(), (batch[5] / 20).softmax(dim=1), rtol=3e-3, atol=0)


def test_import_refuses_an_export_without_the_mark_of_its_order(written: Written, tmp_path: Path) -> None:
    """Before exports had the mark their rectangles were left, top, right, bottom. Other directories need none."""
    folder, new = tmp_path / "old", tmp_path / "new.zarr"
    shutil.copytree(written.folder, folder)
    (folder / "classes.txt").write_text("a\nb\nc\nd\ne\n")  # ours, therefore
    message = r"/old was exported by an older .* it again with `hald labels export STORE.zarr FOLDER`"
    for content in (None, "", "cut: ltrb\n", "cut: tlbrx\n"):
        if content is not None:
            (folder / "format.txt").write_text(content)
        with pytest.raises(UserError, match=message):
            import_labels(folder, written.images, CLASSES, new)
    assert not new.exists()
    (folder / "format.txt").write_text("cut: tlbr\n")
    import_labels(folder, written.images, CLASSES, new)


USES: dict[str, Callable[[LabelStore, Path], object]] = {
    "export": lambda store, folder: export_labels(store, folder / "out"),
    "info": lambda store, folder: describe(store),
}


@pytest.mark.parametrize("use", USES)
def test_imported_store_without_the_mark_is_refused(
    use: str, imported: LabelStore, written: Written, tmp_path: Path
) -> None:
    """Older imports read rectangles as left, top, right, bottom; the oldest kept nothing but the directory's name."""
    again = f"`hald labels import {written.folder} --images set.zarr --to NEW.zarr`"
    old, origin = tmp_path / "old.zarr", {"from": str(written.folder), "images": "set.zarr", "by": "x", "at": "y"}
    shutil.copytree(imported.folder, old)
    for entry in (origin, origin | {"cut": "ltrb"}, str(written.folder)):
        _set_origin(old, entry)
        text = again if isinstance(entry, dict) else again.replace("set.zarr", "IMAGES")
        with pytest.raises(UserError, match=f"/old.zarr was imported by an older version .*: {re.escape(text)}"):
            USES[use](LabelStore(old), tmp_path)
    _set_origin(old, origin | {"cut": "tlbr"})
    USES[use](LabelStore(old), tmp_path)


def _set_origin(store: Path, entry: object) -> None:
    group = json.loads((store / "zarr.json").read_text())
    group["attributes"]["spec"] = {"imported": entry}
    (store / "zarr.json").write_text(json.dumps(group))


def test_unmarked_store_is_named_by_verify_and_not_exported(
    imported: LabelStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old.zarr"
    shutil.copytree(imported.folder, old)
    _set_origin(old, {"from": "/in"})
    assert main(["labels", "verify", str(old)]) == 1
    assert "Import them again: `hald labels import /in --images IMAGES --to NEW.zarr`" in capsys.readouterr().out
    assert main(["labels", "export", str(old), str(tmp_path / "out")]) == 1
    assert "Import them again: `hald labels import /in --images IMAGES --to NEW.zarr`" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_info_says_the_order_of_imported_rectangles(imported: LabelStore) -> None:
    assert imported.header.spec["imported"]["cut"] == "tlbr"
    assert describe(imported)["mixing"] == "CutMix, rectangles top, left, bottom, right (cut: tlbr)"


def released(folder: Path, share: object = 0.5) -> None:
    """A directory as the released code writes it: NumPy scalars among the numbers."""
    folder.mkdir()
    batch = [
        torch.full((2, 4), 0.5, dtype=torch.float16),
        torch.tensor([True, False]),
        torch.tensor([1, 0]),
        share,
        (np.int64(1), np.int64(2), np.int64(30), np.int64(31)),
        torch.full((2, 2), 0.5, dtype=torch.float16),
    ]
    torch.save([batch], folder / "epoch_0.tar")
    torch.save({"0": [1, 0]}, folder / "sampler_indices_dict.pt")


IMAGES = np.zeros((2, 3, 32, 32), dtype=np.uint8)


def test_numpy_numbers_are_read(tmp_path: Path) -> None:
    released(tmp_path / "in", np.float64(0.25))
    import_labels(tmp_path / "in", IMAGES, ["a", "b"], tmp_path / "s.zarr")
    drawn = LabelStore(tmp_path / "s.zarr").drawn(0)
    assert drawn.lam.tolist() == [0.25]
    assert drawn.cut.tolist() == [[1, 2, 30, 31]]
    assert drawn.box.tolist() == [[16, 16, 16, 16]] * 2


class Malicious:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch executed",)


def test_nothing_in_the_files_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    released(tmp_path / "in", Malicious())
    with pytest.raises(UserError, match="holds more than tensors and numbers"):
        import_labels(tmp_path / "in", IMAGES, ["a", "b"], tmp_path / "s.zarr")
    assert not (tmp_path / "executed").exists()
    assert not (tmp_path / "s.zarr").exists()


def test_incomplete_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no epoch_<e>.tar"):
        import_labels(tmp_path, IMAGES, ["a", "b"], tmp_path / "s.zarr")
    released(tmp_path / "in")
    (tmp_path / "in/epoch_0.tar").rename(tmp_path / "in/epoch_2.tar")
    with pytest.raises(UserError, match=r"epoch_0.tar is missing"):
        import_labels(tmp_path / "in", IMAGES, ["a", "b"], tmp_path / "s.zarr")
    (tmp_path / "in/epoch_2.tar").rename(tmp_path / "in/epoch_0.tar")
    with pytest.raises(UserError, match="labels for 2 classes, the images have 3"):
        import_labels(tmp_path / "in", IMAGES, ["a", "b", "c"], tmp_path / "s.zarr")


def test_a_failed_import_leaves_nothing_behind(store: Path, tmp_path: Path) -> None:
    ours = LabelStore(store)
    export_labels(ours, tmp_path / "out")
    whole = (tmp_path / "out/epoch_1.tar").read_bytes()
    before = sorted(path.name for path in tmp_path.iterdir())
    (tmp_path / "out/epoch_1.tar").write_bytes(whole[:500])
    with pytest.raises(UserError, match=r"epoch_1.tar holds more than tensors and numbers, or is damaged"):
        import_labels(tmp_path / "out", ours.images(), ours.header.classes, tmp_path / "new.zarr")
    (tmp_path / "out/epoch_1.tar").unlink()
    with pytest.raises(UserError, match="has orders for 2 epochs, expected 1"):
        import_labels(tmp_path / "out", ours.images(), ours.header.classes, tmp_path / "new.zarr")
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    (tmp_path / "out/epoch_1.tar").write_bytes(whole)
    import_labels(tmp_path / "out", ours.images(), ours.header.classes, tmp_path / "new.zarr")
    assert list(verify_store(tmp_path / "new.zarr")) == []


def test_top_k_stores_export_renormalised_labels(real_set: Path, teacher: Path, tmp_path: Path) -> None:
    spec = labels_spec(codec="topk", top_k=3)
    store = LabelStore(make_labels(spec, real_set, [teacher], tmp_path / "s.zarr", range(1)))
    export_labels(store, tmp_path / "out")
    labels = torch.load(tmp_path / "out/epoch_0.tar", weights_only=True)[0][5]
    assert (labels > 0).sum(dim=1).tolist() == [3] * 8


def mount(folder: Path, options: str) -> None:
    folder.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]).returncode:
        pytest.skip("a file system of our own needs root")


def test_targets_that_cannot_be_are_refused_in_words(store: Path, tmp_path: Path) -> None:
    ours, file = LabelStore(store), tmp_path / "file"
    file.write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").write_text("x")
    for target, message in (
        (file, "file is a file; give a folder that does not exist yet"),
        (file / "out", "cannot export to .*/file/out: a part of that path is a file"),
        (tmp_path / "full", "full is not empty; give a folder that does not exist yet"),
        (tmp_path / ("x" * 300), "cannot export to .*: that name is too long"),
    ):
        with pytest.raises(UserError, match=message):
            export_labels(ours, target)
    released(tmp_path / "in")
    with pytest.raises(UserError, match="cannot import to .*: a part of that path is a file"):
        import_labels(tmp_path / "in", IMAGES, ["a", "b"], file / "s.zarr")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full", "in"]
    assert file.read_text() == "x"
    (tmp_path / "empty").mkdir()
    export_labels(ours, tmp_path / "empty")  # an empty folder is as good as none
    assert (tmp_path / "empty/epoch_1.tar").is_file()


def test_a_folder_without_permission_is_refused_in_words(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel says it to people who are not root."""

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    ours = LabelStore(store)
    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(
        UserError, match="cannot export to .*: there is no permission to write there; give another place"
    ):
        export_labels(ours, tmp_path / "out")


def test_a_read_only_disk_is_named(store: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    mount(disk, "ro")
    try:
        with pytest.raises(UserError, match="cannot export to .*: that file system is read-only"):
            export_labels(LabelStore(store), disk / "out")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("there", [True, False])
def test_a_full_disk_leaves_nothing_of_an_export_or_an_import(there: bool, store: Path, tmp_path: Path) -> None:
    ours, disk = LabelStore(store), tmp_path / "disk"
    export_labels(ours, tmp_path / "out")
    mount(disk, "size=48k")
    try:
        if there:
            (disk / "out").mkdir()
        with pytest.raises(UserError, match="cannot export to .*: the disk is full and nothing was kept; free some"):
            export_labels(ours, disk / "out")
        assert [path.name for path in disk.rglob("*")] == (["out"] if there else [])
        with pytest.raises(UserError, match="cannot import to .*: the disk is full and nothing was kept; free some"):
            import_labels(tmp_path / "out", ours.images(), ours.header.classes, disk / "new.zarr")
        assert [path.name for path in disk.rglob("*")] == (["out"] if there else [])
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_images_of_another_size_than_the_labels_are_refused(store: Path, tmp_path: Path) -> None:
    ours = LabelStore(store)
    export_labels(ours, tmp_path / "out")
    classes = ours.header.classes
    for size, message in (
        (28, r"crop \d+ \(\d+ such\) is \[.*\] .* in pixels of images of 28 px, which is no crop of one"),
        (16, "which is no crop of one|reach to pixel 32, so the labels were made for crops of 32 px or more"),
    ):
        other = np.zeros((20, 3, size, size), dtype=np.uint8)
        with pytest.raises(UserError, match=message):
            import_labels(tmp_path / "out", other, classes, tmp_path / "new.zarr")
    with pytest.raises(UserError, match="epoch 0 is an order of 20 images, but there are 30; are these the images"):
        import_labels(tmp_path / "out", np.zeros((30, 3, 32, 32), dtype=np.uint8), classes, tmp_path / "new.zarr")
    assert not (tmp_path / "new.zarr").exists()


def test_images_twice_as_large_are_noticed_by_where_the_rectangles_end(
    real_set: Path, teacher: Path, tmp_path: Path
) -> None:
    """Boxes of 32 px images are whole pixels of 64 px images too."""
    store = LabelStore(make_labels(labels_spec(count=20, batch=2), real_set, [teacher], tmp_path / "s.zarr", range(1)))
    export_labels(store, tmp_path / "out")
    batches = torch.load(tmp_path / "out/epoch_0.tar", weights_only=True)
    images = np.zeros((140, 3, 64, 64), dtype=np.uint8)
    torch.save(batches * 7, tmp_path / "out/epoch_0.tar")
    torch.save({"0": list(range(140))}, tmp_path / "out/sampler_indices_dict.pt")
    with pytest.raises(UserError, match="of its 70 batches reach to pixel 32, so .* crops of 32 px, but .* 64 px"):
        import_labels(tmp_path / "out", images, store.header.classes, tmp_path / "new.zarr")
