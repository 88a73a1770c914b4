"""The label store: exact, guarded, grown view by view."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from conftest import (
    DATA,
    RANKING,
    STATISTICS,
    TEACHER,
    UNITS,
    images_spec,
    labels_spec,
    make,
    make_labels,
    ranking_spec,
    statistics_spec,
    units_spec,
)
from hald.errors import UserError
from hald.files import file_digest
from hald.labels import relabel as module
from hald.labels.codec import codec_of
from hald.labels.store import LabelStore
from hald.labels.verify import worst_error
from hald.numerics.views import cutmix, render
from hald.squeeze.teacher import load_teacher
from hald.synthesis.spec import FromRanking, FromUnits

CPU = torch.device("cpu")


# As documented: steps between a row's smallest and largest logit; i16 has one step for all; the others eleven bits.
STEPS = {"u8": 208, "u4": 15, "u2": 3}
FIXED = {"i16": 1 / 80}


def half_step(codec: str, logits: np.ndarray) -> np.ndarray:
    """(rows,) the most that rounding may move a logit, from the logits alone."""
    rows = logits.astype(np.float64)
    largest, smallest = rows.max(axis=1), rows.min(axis=1)
    if codec in STEPS:
        return (largest - smallest) / STEPS[codec] / 2
    if codec in FIXED:
        return np.full(len(rows), FIXED[codec] / 2)
    zero = largest if codec == "topk" else rows.mean(axis=1)  # what stands for 0 in half precision
    return np.maximum(largest - zero, zero - smallest) * 2.0**-11


@pytest.mark.parametrize("name", ["u8", "u4", "u2", "i16", "f16"])
@given(
    logits=hnp.arrays(
        np.float32, st.tuples(st.integers(1, 5), st.integers(2, 30)), elements=st.floats(-50, 50, width=32)
    )
)
def test_dense_codecs_err_by_half_a_step_at_most(name: str, logits: np.ndarray) -> None:
    codec = codec_of(name)
    rows = {part: torch.from_numpy(data) for part, data in codec.encode(logits, 0).items()}
    decoded = codec.decode(rows, logits.shape[1]).numpy()
    shift = (decoded - logits).astype(np.float64)
    spread = shift.max(axis=1) - shift.min(axis=1)  # a constant per row does not matter
    assert (spread <= 2 * half_step(name, logits) * 1.01 + 2e-5).all()
    assert codec.half_step(rows)[:, 0].numpy() == pytest.approx(half_step(name, logits), rel=2e-3, abs=1e-6)


def test_topk_keeps_the_largest_and_renormalises(rng: np.random.Generator) -> None:
    logits = rng.normal(size=(6, 20)).astype(np.float32)
    codec = codec_of("topk")
    rows = {part: torch.from_numpy(data) for part, data in codec.encode(logits, 5).items()}
    probability = torch.softmax(codec.decode(rows, 20) / 4.0, dim=1).numpy()
    for row, p in zip(logits, probability, strict=True):
        kept = np.sort(np.argsort(row)[-5:])
        expected = np.exp(row[kept] / 4.0)
        assert np.flatnonzero(p).tolist() == kept.tolist()
        assert p[kept] == pytest.approx(expected / expected.sum(), rel=2e-3)


def test_i16_refuses_what_does_not_fit() -> None:
    with pytest.raises(UserError, match="do not fit codec i16"):
        codec_of("i16").encode(np.array([[0.0, 3000.0]], dtype=np.float32), 0)


def view_hashes(folder: Path, view: int) -> dict[str, str]:
    return {
        name: entry["sha256"]
        for name, entry in json.loads((folder / f"views/{view:05d}.json").read_text())["files"].items()
    }


def replayed(store: LabelStore, teacher: Path, view: int, start: int) -> torch.Tensor:
    """Logits of one stored batch, computed the plain way: alone, with `train()` for batch statistics."""
    spec, drawn = store.header.spec, store.drawn(view)
    rows = slice(start, min(start + spec["batch"], spec["count"]))
    number = start // spec["batch"]
    assert drawn.mix == spec["mix"]
    image, box, flip, partner = (
        torch.from_numpy(part[rows]) for part in (drawn.image, drawn.box, drawn.flip, drawn.partner)
    )
    x = render(torch.from_numpy(store.images())[image], box, flip, 32)
    if spec["mix"] == "cutmix":
        x = cutmix(x, partner, torch.from_numpy(drawn.cut[number]).expand(len(x), 4))
    elif spec["mix"] == "mixup":
        x = drawn.lam[number] * x + (1 - drawn.lam[number]) * x[partner]
    network, _ = load_teacher(teacher, store.header.classes, 0.0, CPU)
    network.train(spec["bn_mode"] == "batch")
    with torch.inference_mode():
        return network((x - 0.3) / 0.3)


@pytest.mark.parametrize("codec", ["u8", "u4", "i16", "f16", "topk"])
@pytest.mark.parametrize("bn_mode", ["running", "batch"])
@pytest.mark.parametrize("mix", ["cutmix", "mixup", "none"])
def test_stored_labels_are_the_teachers_answers(
    codec: str, bn_mode: str, mix: str, real_set: Path, teacher: Path, tmp_path: Path
) -> None:
    spec = labels_spec(bn_mode=bn_mode, mix=mix, codec=codec, top_k=4)
    store = LabelStore(make_labels(spec, real_set, [teacher], tmp_path / "s.zarr", range(2)))
    for view in range(2):
        stored = {name: torch.from_numpy(array) for name, array in store.rows(view)}
        for start in range(0, 20, 8):
            rows = {name: array[start : start + 8] for name, array in stored.items()}
            decoded = store.codec.decode(rows, 10)
            kept = torch.isfinite(decoded)
            assert kept.sum(dim=1).unique().tolist() == [4 if codec == "topk" else 10]
            expected = replayed(store, teacher, view, start)
            difference = torch.where(kept, decoded - expected, torch.nan)
            offset = difference.nan_to_num(-1e9).amax(1, keepdim=True) + difference.nan_to_num(1e9).amin(
                1, keepdim=True
            )
            error = (difference - offset / 2).abs().nan_to_num(0)
            allowed = half_step(codec, expected.numpy())[:, None] + 1e-4
            assert (error.numpy() <= allowed).all()


@pytest.fixture(scope="module")
def sets(digits: Path, teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small image set of every method, by name."""
    folder = tmp_path_factory.mktemp("sets")
    sources = {DATA: digits, TEACHER: teacher, STATISTICS: folder / "statistics", RANKING: folder / "ranking"}
    make(statistics_spec(), sources[STATISTICS], sources)
    make(ranking_spec(), sources[RANKING], sources, range(10))
    specs = {"rded": images_spec(method="rded", source=FromRanking(RANKING, 1)), "real": images_spec()}
    for method, count in {"sre2l": 4, "lpld": 10, "fadrm": 4}.items():
        make(units_spec(method), folder / f"{method}-units", sources, range(count))
        specs[method] = images_spec(method=method, source=FromUnits(UNITS, 5))
    return {
        method: make(spec, folder / f"{method}.zarr", sources | {UNITS: folder / f"{method}-units"})
        for method, spec in specs.items()
    }


@pytest.mark.parametrize("method", ["sre2l", "lpld", "fadrm", "rded", "real"])
@pytest.mark.parametrize("bn_mode", ["running", "batch"])
def test_labels_are_exact_for_every_method_and_bn_mode(
    method: str, bn_mode: str, sets: dict[str, Path], teacher: Path, tmp_path: Path
) -> None:
    """Images as the method makes them: stored labels are the teacher's on the same pixels, within half a step."""
    spec = labels_spec(bn_mode=bn_mode)
    store = LabelStore(make_labels(spec, sets[method], [teacher], tmp_path / "s.zarr", range(3)))
    for view in range(3):
        again = torch.cat([replayed(store, teacher, view, start) for start in range(0, 20, 8)])
        assert worst_error(store, view, again) < 1e-4
        assert worst_error(store, view, again + torch.eye(10).repeat(2, 1)) > 0.1  # it would notice


def test_an_ensemble_is_the_weighted_sum_of_its_teachers(real_set: Path, teacher: Path, tmp_path: Path) -> None:
    spec = labels_spec(teachers=("1" * 10, "4" * 10), weights=(0.75, -0.25), codec="f16")
    store = LabelStore(make_labels(spec, real_set, [teacher, teacher], tmp_path / "s.zarr", range(1)))
    decoded = store.codec.decode({name: torch.from_numpy(array) for name, array in store.rows(0)}, 10)[:8]
    expected = 0.5 * replayed(store, teacher, 0, 0)
    assert (decoded - (expected - expected.mean(dim=1, keepdim=True))).abs().max() < 5e-3
    assert (tmp_path / "s.zarr/teachers/1/teacher.safetensors").is_file()


def test_a_store_explains_itself(store: Path) -> None:
    header = LabelStore(store).header
    assert header.classes == [str(i) for i in range(10)]
    assert header.teachers[0]["arch"] == "small/resnet10-w4"
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
    make_labels(labels_spec(), tmp_path / "no-images", [tmp_path / "no-teacher"], store, range(5))
    assert len(labelled) == 3
    assert [view_hashes(store, view) for view in range(2)] == before
    assert LabelStore(store).read(["q"], 5)["q"].shape == (5, 20, 10)


def test_views_do_not_depend_on_how_they_were_asked_for(
    store: Path, real_set: Path, teacher: Path, tmp_path: Path
) -> None:
    other = make_labels(labels_spec(), real_set, [teacher], tmp_path / "other.zarr", range(1, 2))
    assert view_hashes(other, 1) == view_hashes(store, 1)


def test_a_whole_view_is_never_written_again(store: Path) -> None:
    """The writer itself refuses, so root and the owner of the files cannot do it by accident either."""
    opened = LabelStore(store)
    drawn = opened.drawn(0)
    before = {path: (file_digest(path), path.stat().st_mtime_ns) for path in store.rglob("*") if path.is_file()}
    assert all(os.access(path, os.W_OK) for path in before)  # nothing but the writer stands in the way
    with pytest.raises(UserError, match="view 0 of .* is complete and is not written again"):
        opened.write(0, drawn, np.zeros((20, 10), dtype=np.float32))
    make_labels(labels_spec(), store / "no-images", [store / "no-teacher"], store, range(1))  # nor does a job
    after = {path: (file_digest(path), path.stat().st_mtime_ns) for path in store.rglob("*") if path.is_file()}
    assert after == before


def test_an_image_set_of_another_size_is_refused(real_set: Path, teacher: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has 20 images, the plan expects 30; remove it"):
        make_labels(labels_spec(count=30), real_set, [teacher], tmp_path / "s.zarr", range(1))
    assert not (tmp_path / "s.zarr").exists()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_refused(value: float, store: Path) -> None:
    """A teacher that is broken in one crop: nothing is written."""
    opened, logits = LabelStore(store), np.zeros((20, 10), dtype=np.float32)
    drawn = opened.drawn(1)
    opened.marker(1).unlink()
    logits[7, 3] = value
    with pytest.raises(UserError, match="logits for crop 7 of view 1 are not finite"):
        opened.write(1, drawn, logits)
    assert not opened.marker(1).exists()


def test_a_view_without_its_marker_is_not_read(store: Path) -> None:
    opened = LabelStore(store)
    opened.marker(1).unlink()
    with pytest.raises(UserError, match="view 1 of label store .* is not complete"):
        opened.read(["q"], 2)
    assert opened.read(["q"], 1)["q"].shape == (1, 20, 10)


def test_damage_is_named(store: Path) -> None:
    opened = LabelStore(store)
    with pytest.raises(UserError, match="view 2 of label store .* is not complete; start snakemake again"):
        opened.read(["q"], 3)
    shard = store / "q/c/1/0/0"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    with pytest.raises(UserError, match=r"array q of view 1 has \d+ bytes instead of"):
        opened.read(["q"], 2)
    shard.unlink()
    with pytest.raises(UserError, match="array q of view 1 is missing"):
        opened.read(["q"], 2)
    flipped = bytearray(content)
    flipped[20] ^= 4
    shard.write_bytes(bytes(flipped))
    with pytest.raises(UserError, match="array q is damaged"):
        opened.read(["q"], 2)


def test_a_store_of_another_format_or_other_images_is_refused(store: Path) -> None:
    group = json.loads((store / "zarr.json").read_text())
    group["attributes"]["format"] = 99
    (store / "zarr.json").write_text(json.dumps(group))
    with pytest.raises(UserError, match="has format 99, this version reads 2"):
        LabelStore(store)
    group["attributes"] |= {"format": 2, "images_digest": "0" * 64}
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
    make_labels(labels_spec(), real_set, [teacher], tmp_path / "s.zarr", range(1))
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
        make_labels(labels_spec(), real_set, [other], tmp_path / "s.zarr", range(1))
    assert not (tmp_path / "s.zarr").exists()
