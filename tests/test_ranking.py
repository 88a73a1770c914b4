"""Rankings, RDED and patches: against brute force and by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from conftest import DATA, RANKING, TEACHER, images_spec, job_for, make, ranking_spec
from hald.datasets.reader import Split, open_dataset
from hald.datasets.training_crops import CropRequest, Crops
from hald.files import read_json, write_json
from hald.numerics.random_streams import permutation, uniforms
from hald.numerics.views import CROP_WIDTH, crop_boxes, render
from hald.squeeze.teacher import load_teacher
from hald.synthesis.image_set import open_set
from hald.synthesis.mosaics import mosaic
from hald.synthesis.ranking import by_difficulty, score, select
from hald.synthesis.spec import FromDataset, FromRanking, ImagesSpec, Patches
from hald.synthesis.unit_files import load_unit

CPU = torch.device("cpu")


def images_of(spec: ImagesSpec, digits: Path, ranking: Path | None, folder: Path) -> np.ndarray:
    made = make(spec, folder / "set.zarr", {DATA: digits} | ({RANKING: ranking} if ranking else {}))
    return open_set(made).images()


def rded_spec(factor: int = 1, **changes: object) -> ImagesSpec:
    return images_spec(method="rded", source=FromRanking("4" * 10, factor), **changes)


def brute_force(digits: Path, teacher: Path, label: int) -> list[tuple[float, np.ndarray]]:
    """Loss and pixels of the best crop of each of six images, lowest loss first, one crop at a time."""
    spec, data = ranking_spec(), open_dataset(digits)
    network, _ = load_teacher(teacher, data.classes, 0.0, CPU)
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
    return sorted(best, key=lambda pair: pair[0])


def test_rded_keeps_the_crops_that_a_brute_force_ranking_keeps(
    digits: Path, teacher: Path, ranking: Path, tmp_path: Path
) -> None:
    images = images_of(rded_spec(), digits, ranking, tmp_path)
    best = brute_force(digits, teacher, 3)
    for j in range(2):
        assert np.array_equal(images[3 * 2 + j], best[j][1])
    assert open_set(tmp_path / "set.zarr").losses()[6:8] == pytest.approx([best[0][0], best[1][0]], abs=1e-5)
    assert load_unit(ranking, 3)["loss"] == pytest.approx([loss for loss, _ in best], abs=1e-5)


@pytest.mark.parametrize(("difficulty", "ranks"), [("easy", [0, 1]), ("medium", [2, 3]), ("hard", [5, 4])])
def test_patches_are_the_ranks_that_their_difficulty_says(
    digits: Path, teacher: Path, ranking: Path, tmp_path: Path, difficulty: str, ranks: list[int]
) -> None:
    spec = images_spec(method="patches", source=Patches("4" * 10, difficulty, 1))
    images = images_of(spec, digits, ranking, tmp_path)
    best = brute_force(digits, teacher, 7)
    for image, r in zip(images[14:16], ranks, strict=True):
        assert np.array_equal(image, best[r][1])
    assert "unpublished" in open_set(tmp_path / "set.zarr").record()["note"]


# Distance from the median rank, the lower one first: of five ranks 2 is the median, of four it lies between 1 and 2.
@pytest.mark.parametrize(
    ("count", "difficulty", "order"),
    [
        (5, "medium", [2, 1, 3, 0, 4]),
        (4, "medium", [1, 2, 0, 3]),
        (1, "medium", [0]),
        (3, "easy", [0, 1, 2]),
        (3, "hard", [2, 1, 0]),
    ],
)
def test_difficulty_by_hand(count: int, difficulty: str, order: list[int]) -> None:
    assert by_difficulty(count, difficulty).tolist() == order


def test_select_takes_one_crop_per_image_and_ranks() -> None:
    loss = torch.tensor([5.0, 2.0, 1.0, 9.0, 2.0, 3.0])  # best of each pair: 2 (crop 1), 1 (crop 2), 2 (crop 4)
    kept, losses = select(loss, 2)
    assert kept.tolist() == [2, 1, 4]
    assert losses.tolist() == [1.0, 2.0, 2.0]


def test_mosaic_cells_are_row_major_over_ranks() -> None:
    crops = torch.arange(8, dtype=torch.uint8).view(8, 1, 1, 1).expand(8, 3, 2, 2).contiguous()
    out = mosaic(crops, ipc=2, factor=2, size=5)
    assert out[0, 0].tolist() == [[0, 0, 0, 2, 2], [0, 0, 0, 2, 2], [0, 0, 0, 2, 2], [4, 4, 4, 6, 6], [4, 4, 4, 6, 6]]
    assert out[1, 0, 0, 0] == 1
    assert out[1, 0, 4, 4] == 7


def test_factor_two_is_scored_in_an_empty_canvas_and_patches_nest(digits: Path, teacher: Path, tmp_path: Path) -> None:
    make(ranking_spec(side=16, mipc=10), tmp_path / "rank", {DATA: digits, TEACHER: teacher}, range(10))
    images = images_of(rded_spec(2), digits, tmp_path / "rank", tmp_path / "rded")
    assert images.shape == (20, 3, 32, 32)
    data = open_dataset(digits)
    network, _ = load_teacher(teacher, data.classes, 0.0, CPU)
    crop = torch.from_numpy(images[:1, :, :16, :16].copy())
    canvas = torch.zeros(1, 3, 32, 32)
    canvas[:, :, 8:24, 8:24] = (crop / 255 - 0.3) / 0.3
    expected = float(F.cross_entropy(network(canvas), torch.tensor([0])))
    assert float(score(network, crop, 0, 32, ((0.3,) * 3, (0.3,) * 3))[0]) == pytest.approx(expected, abs=1e-6)
    assert load_unit(tmp_path / "rank", 0)["loss"][0] == pytest.approx(expected, abs=1e-5)
    spec = images_spec(method="patches", source=Patches("4" * 10, "easy", 2), ipc=1)
    one = images_of(spec, digits, tmp_path / "rank", tmp_path / "one")
    two = images_of(images_spec(method="patches", source=spec.source), digits, tmp_path / "rank", tmp_path / "two")
    assert np.array_equal(one[3], two[6])
    # crops 0 .. 3 make patch 0, whatever the IPC; RDED's cell 1 holds crop 1 * IPC instead
    assert np.array_equal(
        two[0][:, :16, 16:], images_of(rded_spec(2, ipc=1), digits, tmp_path / "rank", tmp_path / "x")[0][:, :16, 16:]
    )


def test_a_killed_ranking_goes_on_to_the_same_units(
    digits: Path, teacher: Path, ranking: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hald.synthesis.ranking as module

    calls: list[int] = []
    rank_class = module.rank_class

    def dies_at_the_fifth(*arguments: object) -> object:
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return rank_class(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "rank_class", dies_at_the_fifth)
    job = job_for(ranking_spec(), tmp_path, {DATA: digits, TEACHER: teacher}, range(10))
    with pytest.raises(KeyboardInterrupt):
        job.run()
    job.run()
    assert len(calls) == 4 + 1 + 6  # four classes were kept
    for label in range(10):
        cut, whole = load_unit(tmp_path, label), load_unit(ranking, label)
        assert all(np.array_equal(cut[name], whole[name]) for name in whole)


def test_crops_of_encoded_images_are_cut_again_from_their_boxes(tmp_path: Path) -> None:
    """What a ranking keeps (image, box) gives the pixels that were scored, for images that are decoded on demand."""
    rng = np.random.default_rng(0)
    paths = []
    for i, (height, width) in enumerate([(40, 50), (64, 33)]):
        paths.append(str(tmp_path / f"{i}.png"))
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(paths[-1])
    write_json(tmp_path / "train_files.json", paths)
    split = Split(tmp_path, "train", "files", np.array([0, 0]))
    assert [split.shape(i) for i in range(2)] == [(40, 50), (64, 33)]
    crops = Crops(split, 16, (0.08, 1.0), (1.0, 1.0), 0, CPU)
    index, draws = np.array([0, 0, 1]), uniforms("test", 0, 0, 3, CROP_WIDTH)
    drawn = crops.decoded(CropRequest(index, draws, np.zeros(3, dtype=bool)))
    boxes = np.concatenate(
        [crop_boxes(draws[i][None], *split.shape(int(index[i])), (0.08, 1.0), (1.0, 1.0)) for i in range(3)]
    )
    assert torch.equal(crops.cut(index, boxes), drawn)


def test_real_subsets_are_real_and_nested(digits: Path, tmp_path: Path) -> None:
    two = images_of(images_spec(), digits, None, tmp_path / "a")
    five = images_of(images_spec(ipc=5, source=FromDataset(None, 0)), digits, None, tmp_path / "b")
    data = open_dataset(digits)
    pool = {data.train.read(int(i)).transpose(2, 0, 1).tobytes() for i in data.train.of_class(7)}
    assert all(image.tobytes() in pool for image in five[35:40])
    assert np.array_equal(two[14:16], five[35:37])


def test_a_ranking_of_other_images_is_refused(digits: Path, ranking: Path, tmp_path: Path) -> None:
    from hald.errors import UserError

    copy = tmp_path / "data"
    copy.mkdir()
    for path in digits.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    manifest = read_json(copy / "manifest.json") | {"digest": "f" * 64}
    write_json(copy / "manifest.json", manifest)
    with pytest.raises(UserError, match="made from other real images"):
        images_of(rded_spec(), copy, ranking, tmp_path / "set")
