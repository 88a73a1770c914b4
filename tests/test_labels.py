"""The label store: exact, guarded, grown view by view."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from conftest import labels_spec
from hald.errors import UserError
from hald.files import file_digest
from hald.labels import relabel as module
from hald.labels.codec import decode_u8, encode_u8
from hald.labels.relabel import Places, relabel
from hald.labels.store import LabelStore
from hald.teacher import load_teacher
from hald.views import cutmix, render

CPU = torch.device("cpu")


@given(hnp.arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(2, 30)), elements=st.floats(-50, 50, width=32)))
def test_codec_error_is_within_half_a_step(logits: np.ndarray) -> None:
    q, scale = encode_u8(logits)
    decoded = decode_u8(torch.from_numpy(q), torch.from_numpy(scale)).numpy()
    error = np.abs(decoded - (logits - logits.min(axis=1, keepdims=True)))
    assert (error <= scale[:, None] * 0.5001 + 1e-5).all()


def view_hashes(folder: Path, view: int) -> dict[str, str]:
    return {
        name: entry["sha256"]
        for name, entry in json.loads((folder / f"views/{view:05d}.json").read_text())["files"].items()
    }


@pytest.mark.parametrize("bn_mode", ["running", "batch"])
def test_stored_labels_are_the_teachers_answers(bn_mode: str, real_set: Path, teacher: Path, tmp_path: Path) -> None:
    """Replay every stored batch alone, the plain way, and compare with what the store decodes to."""
    relabel(labels_spec(bn_mode=bn_mode), Places(real_set, teacher, tmp_path / "s.zarr"), range(2), 0.0, CPU)
    store = LabelStore(tmp_path / "s.zarr")
    network, _ = load_teacher(teacher, store.header.classes, 0.0, CPU)
    images = torch.from_numpy(store.images())
    for view in range(2):
        drawn = store.drawn(view)
        q, scale = (torch.from_numpy(store.read(name, 2)[view]) for name in ("q", "scale"))
        for start in range(0, 20, 8):
            rows = slice(start, min(start + 8, 20))
            parts = [torch.from_numpy(part[rows]) for part in (drawn.image, drawn.box, drawn.flip, drawn.partner)]
            cut = torch.from_numpy(drawn.cut[start // 8 : start // 8 + 1]).expand(len(parts[0]), 4)
            x = cutmix(render(images[parts[0]], parts[1], parts[2], 32), parts[3], cut)
            reference = load_teacher(teacher, store.header.classes, 0.0, CPU)[0]
            reference.train(bn_mode == "batch")
            with torch.inference_mode():
                logits = reference((x - 0.3) / 0.3)
            logits = logits - logits.min(dim=1, keepdim=True).values
            error = (decode_u8(q[rows], scale[rows]) - logits).abs()
            assert (error <= scale[rows, None] * 0.5 + 1e-4).all()
    assert not any(layer.training for layer in network.modules())


def test_a_store_explains_itself(store: Path) -> None:
    header = LabelStore(store).header
    assert header.classes == [str(i) for i in range(10)]
    assert header.teacher["arch"] == "small/resnet10-w4"
    assert header.view_settings["seed"] == 42
    assert header.batches == 3


def test_growing_keeps_old_views_and_needs_neither_images_nor_teacher(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [view_hashes(store, view) for view in range(2)]
    labelled: list[int] = []
    label_view = module.label_view

    def counted(*arguments: object) -> object:
        labelled.append(1)
        return label_view(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "label_view", counted)
    nowhere = Places(tmp_path / "no-images", tmp_path / "no-teacher", store)
    relabel(labels_spec(), nowhere, range(5), 0.0, CPU)
    assert len(labelled) == 3
    assert [view_hashes(store, view) for view in range(2)] == before
    assert LabelStore(store).read("q", 5).shape == (5, 20, 10)


def test_views_do_not_depend_on_how_they_were_asked_for(
    store: Path, real_set: Path, teacher: Path, tmp_path: Path
) -> None:
    places = Places(real_set, teacher, tmp_path / "other.zarr")
    relabel(labels_spec(), places, range(1, 2), 0.0, CPU)
    assert view_hashes(places.store, 1) == view_hashes(store, 1)


def test_a_whole_view_is_never_written_again(store: Path) -> None:
    opened = LabelStore(store)
    drawn = opened.drawn(0)
    with pytest.raises(UserError, match="view 0 of .* is complete and is not written again"):
        opened.write(0, drawn, np.zeros((20, 10), dtype=np.float32))


def test_damage_is_named(store: Path) -> None:
    opened = LabelStore(store)
    with pytest.raises(UserError, match="view 2 of label store .* is not complete; run `snakemake"):
        opened.read("q", 3)
    shard = store / "q/c/1/0/0"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    with pytest.raises(UserError, match=r"array q of view 1 has \d+ bytes instead of"):
        opened.read("q", 2)
    shard.unlink()
    with pytest.raises(UserError, match="array q of view 1 is missing"):
        opened.read("q", 2)
    flipped = bytearray(content)
    flipped[20] ^= 4
    shard.write_bytes(bytes(flipped))
    with pytest.raises(UserError, match="array q is damaged"):
        opened.read("q", 2)


def test_a_store_of_another_format_or_other_images_is_refused(store: Path) -> None:
    group = json.loads((store / "zarr.json").read_text())
    group["attributes"]["format"] = 99
    (store / "zarr.json").write_text(json.dumps(group))
    with pytest.raises(UserError, match="has format 99, this version reads 1"):
        LabelStore(store)
    group["attributes"] |= {"format": 1, "images_digest": "0" * 64}
    (store / "zarr.json").write_text(json.dumps(group))
    with pytest.raises(UserError, match="not those its labels were made for"):
        LabelStore(store).images()


def test_images_are_linked_not_doubled(store: Path, real_set: Path) -> None:
    ours, theirs = (sorted((folder / "images").rglob("c/*"))[0] for folder in (store, real_set))
    files = [next(path for path in folder.rglob("*") if path.is_file()) for folder in (ours, theirs)]
    assert files[0].stat().st_ino == files[1].stat().st_ino


def test_a_half_made_store_is_replaced(real_set: Path, teacher: Path, tmp_path: Path) -> None:
    """What a kill can leave: folders that Snakemake made, and arrays without the group's own file."""
    (tmp_path / "s.zarr/views").mkdir(parents=True)
    shutil.copytree(real_set / "images", tmp_path / "s.zarr/images")
    relabel(labels_spec(), Places(real_set, teacher, tmp_path / "s.zarr"), range(1), 0.0, CPU)
    assert LabelStore(tmp_path / "s.zarr").has(0)
    assert [path.name for path in tmp_path.iterdir()] == ["s.zarr"]


def test_marker_hashes_are_those_of_the_files(store: Path) -> None:
    assert view_hashes(store, 0)["q"] == file_digest(store / "q/c/0/0/0")


def test_images_and_teacher_of_other_classes_are_refused(real_set: Path, teacher: Path, tmp_path: Path) -> None:
    other = shutil.copytree(teacher, tmp_path / "teacher")
    record = json.loads((other / "teacher.json").read_text())
    record["classes"].reverse()
    (other / "teacher.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=r"class order \w+ \(10 classes, number 0 is '9'\)"):
        relabel(labels_spec(), Places(real_set, other, tmp_path / "s.zarr"), range(1), 0.0, CPU)
    assert not (tmp_path / "s.zarr").exists()
