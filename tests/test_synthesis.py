"""Image sets: RDED against brute force, real subsets, resume."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from conftest import images_spec
from hald.data.reader import open_dataset
from hald.draws import permutation, uniforms
from hald.files import read_json
from hald.synthesis import rded, real
from hald.synthesis.build import Places, Resources
from hald.synthesis.imageset import open_set
from hald.synthesis.rded import mosaic, select
from hald.teacher import load_teacher
from hald.views import CROP_WIDTH, crop_boxes, render

CPU = torch.device("cpu")


def make(method: object, spec: object, digits: Path, teacher: Path | None, folder: Path) -> np.ndarray:
    places = Places(digits, teacher, folder / "set.zarr", folder / "partial")
    method.synthesize(spec, places, Resources(CPU, 0, 0.0))  # type: ignore[attr-defined]
    return open_set(folder / "set.zarr").images()


def test_rded_keeps_the_crops_that_a_brute_force_ranking_keeps(digits: Path, teacher: Path, tmp_path: Path) -> None:
    spec = images_spec()
    images = make(rded, spec, digits, teacher, tmp_path)
    data = open_dataset(digits)
    network, _ = load_teacher(teacher, data.classes, 0.0, CPU)
    label = 3
    members = data.train.of_class(label)
    chosen = members[permutation("rded-images", 0, label, len(members))[: spec.mipc]]
    draws = uniforms("rded-crops", 0, label, spec.mipc * spec.num_crop, CROP_WIDTH)
    best = []
    for i, index in enumerate(chosen):
        scored = []
        for j in range(spec.num_crop):
            box = crop_boxes(draws[i * spec.num_crop + j][None], 32, 32, (0.08, 1.0), (1.0, 1.0))
            assert box[0, 2] == box[0, 3]  # square
            source = torch.from_numpy(data.train.read(int(index)).copy()).permute(2, 0, 1)
            crop = (render(source[None], torch.from_numpy(box), torch.tensor([False]), 32) * 255).round() / 255
            loss = F.cross_entropy(network((crop - 0.3) / 0.3), torch.tensor([label]))
            scored.append((float(loss), (crop * 255).round().to(torch.uint8)[0].numpy()))
        best.append(min(scored, key=lambda pair: pair[0]))
    best.sort(key=lambda pair: pair[0])
    for j in range(spec.ipc):
        assert np.array_equal(images[label * spec.ipc + j], best[j][1])


def test_select_takes_one_crop_per_image_and_ranks() -> None:
    crops = torch.arange(6).view(6, 1, 1, 1).expand(6, 3, 2, 2)
    loss = torch.tensor([5.0, 2.0, 1.0, 9.0, 2.0, 3.0])  # best of each pair: 2 (crop 1), 1 (crop 2), 2 (crop 4)
    kept, losses = select(crops, loss, 3, 2)
    assert kept[:, 0, 0, 0].tolist() == [2, 1, 4]
    assert losses.tolist() == [1.0, 2.0, 2.0]


def test_mosaic_cells_are_row_major_over_ranks() -> None:
    crops = torch.arange(8, dtype=torch.uint8).view(8, 1, 1, 1).expand(8, 3, 2, 2).contiguous()
    out = mosaic(crops, ipc=2, factor=2, size=5)
    assert out[0, 0].tolist() == [[0, 0, 0, 2, 2], [0, 0, 0, 2, 2], [0, 0, 0, 2, 2], [4, 4, 4, 6, 6], [4, 4, 4, 6, 6]]
    assert out[1, 0, 0, 0] == 1
    assert out[1, 0, 4, 4] == 7


def test_a_factor_two_set_is_scored_in_an_empty_canvas(digits: Path, teacher: Path, tmp_path: Path) -> None:
    images = make(rded, images_spec(factor=2, mipc=10), digits, teacher, tmp_path)
    assert images.shape == (20, 3, 32, 32)
    data = open_dataset(digits)
    network, _ = load_teacher(teacher, data.classes, 0.0, CPU)
    crop = torch.from_numpy(images[:1, :, :16, :16].copy())
    canvas = torch.zeros(1, 3, 32, 32)
    canvas[:, :, 8:24, 8:24] = (crop / 255 - 0.3) / 0.3
    expected = F.cross_entropy(network(canvas), torch.tensor([0]))
    assert rded.score(network, crop, 0, 32, ((0.3,) * 3, (0.3,) * 3))[0] == pytest.approx(float(expected), abs=1e-6)


def test_real_subsets_are_real_and_nested(digits: Path, tmp_path: Path) -> None:
    two = make(real, images_spec(method="real", teacher=None), digits, None, tmp_path / "a")
    five = make(real, images_spec(method="real", teacher=None, ipc=5), digits, None, tmp_path / "b")
    data = open_dataset(digits)
    pool = {data.train.read(int(i)).transpose(2, 0, 1).tobytes() for i in data.train.of_class(7)}
    assert all(image.tobytes() in pool for image in five[35:40])
    assert np.array_equal(two[14:16], five[35:37])


def test_a_killed_synthesis_goes_on_to_the_same_set(
    digits: Path, teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = images_spec()
    make(rded, spec, digits, teacher, tmp_path / "whole")
    calls: list[int] = []
    score_class = rded._score_class

    def dies_at_the_fifth(*arguments: object) -> object:
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return score_class(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(rded, "_score_class", dies_at_the_fifth)
    with pytest.raises(KeyboardInterrupt):
        make(rded, spec, digits, teacher, tmp_path / "cut")
    assert not (tmp_path / "cut/set.zarr").exists()
    make(rded, spec, digits, teacher, tmp_path / "cut")
    assert len(calls) == 4 + 1 + 6  # four classes were kept
    records = [read_json(tmp_path / name / "set.zarr/image_set.json") for name in ("whole", "cut")]
    assert records[0] == records[1]
