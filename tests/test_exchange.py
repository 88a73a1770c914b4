"""Import and export of the released label format."""

import errno
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from conftest import labels_spec, make_labels
from hald.errors import UserError
from hald.labels.exchange import box_fractions, export_labels
from hald.labels.imported import import_labels
from hald.labels.store import LabelStore
from hald.labels.verify import verify_store


@given(st.sampled_from([32, 64, 128, 224, 256]), st.integers(0, 256))
def test_exported_boxes_survive_truncation_and_rounding(size: int, pixel: int) -> None:
    pixel = min(pixel, size)
    half = box_fractions(np.array([[pixel] * 4]), (size, size))
    assert half.dtype == np.float16
    assert [int(float(value) * size) for value in half[0]] == [pixel] * 4  # as the released reader decodes
    assert np.rint(half.astype(np.float64) * size).astype(int).tolist() == [[pixel] * 4]


def test_a_round_trip_keeps_everything(store: Path, tmp_path: Path) -> None:
    ours = LabelStore(store)
    export_labels(ours, tmp_path / "out")
    back_path = tmp_path / "back.zarr"
    import_labels(tmp_path / "out", ours.images(), ours.header.classes, back_path)
    back = LabelStore(back_path)
    assert back.views() == [0, 1]
    assert list(verify_store(back_path)) == []
    for view in range(2):
        a, b = ours.drawn(view), back.drawn(view)
        for name in ("image", "box", "flip", "partner", "lam", "cut"):
            assert np.array_equal(getattr(a, name), getattr(b, name)), name
        p, q = (
            torch.softmax(s.codec.decode({n: torch.from_numpy(x) for n, x in s.rows(view)}, 10) / 20, dim=1)
            for s in (ours, back)
        )
        assert (p - q).abs().max() < 2**-11 * 0.25 + 1e-4  # fp16 near 0.1-0.25, and i16's own step


def test_the_exported_files_are_what_the_released_trainer_reads(store: Path, tmp_path: Path) -> None:
    """File names, list layout, types and image order, as its reader takes them apart."""
    export_labels(LabelStore(store), tmp_path / "out")
    batches = torch.load(tmp_path / "out/epoch_1.tar", weights_only=True)
    assert [len(batch[0]) for batch in batches] == [8, 8, 4]
    box, flip, partner, share, rectangle, labels = batches[0]
    assert (box.dtype, flip.dtype, partner.dtype, labels.dtype) == (
        torch.float16,
        torch.bool,
        torch.int64,
        torch.float16,
    )
    assert isinstance(share, float)
    assert len(rectangle) == 4
    assert labels.sum(dim=1).float() == pytest.approx(torch.ones(8), abs=3e-3)
    order = torch.load(tmp_path / "out/sampler_indices_dict.pt", weights_only=True)
    assert sorted(order["1"]) == list(range(20))
    files = sorted((tmp_path / "out/images").rglob("*.png"))
    images = np.stack([np.asarray(Image.open(file)).transpose(2, 0, 1) for file in files])
    assert np.array_equal(images, LabelStore(store).images())
    assert files[3].relative_to(tmp_path / "out/images") == Path("new001/class001_id001.png")


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
    assert drawn.cut.tolist() == [[2, 1, 31, 30]]  # stored as left, top, right, bottom
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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full", "in", "labels.zarr"]
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
