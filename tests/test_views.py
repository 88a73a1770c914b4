"""Views: drawing by address, and the renderer against torchvision."""

import hashlib
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.transforms.v2 import functional as tv

from hald.numerics.random_streams import generator, permutation, uniforms
from hald.numerics.views import (
    CROP_WIDTH,
    ViewSettings,
    crop_boxes,
    cutmix,
    cutmix_rectangles,
    draw_view,
    normalize,
    render,
    render_batches,
)


def view_settings(**changes: object) -> ViewSettings:
    values = {
        "seed": 42,
        "count": 20,
        "batch": 8,
        "source": (32, 32),
        "size": 32,
        "scale": (0.08, 1.0),
        "ratio": (0.75, 4 / 3),
        "flip": 0.5,
        "mix": "cutmix",
        "mix_alpha": 1.0,
    }
    return ViewSettings(**(values | changes))  # type: ignore[arg-type]


def test_random_numbers_are_philoxs_at_their_address() -> None:
    """Key: the first 64 bits of SHA-256 of `stream:seed`, and the counter, 0 where there is none."""
    word = int.from_bytes(hashlib.sha256(b"crop:42").digest()[:8], "little")
    for counter in (0, 7):
        wanted = np.random.Generator(np.random.Philox(key=np.array([word, counter], dtype=np.uint64)))
        found = generator("crop", 42, counter) if counter else generator("crop", 42)
        assert found.random(4).tolist() == wanted.random(4).tolist()


@st.composite
def crops(draw: st.DrawFn) -> tuple[int, int, tuple[int, int, int, int], int, bool, int]:
    height, width, size = (draw(st.integers(1, 70)) for _ in range(3))
    h, w = draw(st.integers(1, height)), draw(st.integers(1, width))
    top, left = draw(st.integers(0, height - h)), draw(st.integers(0, width - w))
    return height, width, (top, left, h, w), size, draw(st.booleans()), draw(st.integers(0, 2**31))


@settings(max_examples=1000, deadline=None)
@given(crops())
def test_render_equals_torchvision(case: tuple[int, int, tuple[int, int, int, int], int, bool, int]) -> None:
    height, width, box, size, flip, seed = case
    image = torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    ours = render(image[None], torch.tensor([box]), torch.tensor([flip]), size)[0]
    expected = tv.resized_crop(image / 255, *box, size=[size, size], antialias=True)
    expected = expected.flip(-1) if flip else expected
    assert (ours - expected).abs().max() <= 1 / 255


def test_render_treats_every_image_of_a_batch_alike() -> None:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (5, 3, 40, 40), dtype=torch.uint8, generator=generator)
    box = torch.tensor([[0, 0, 40, 40], [3, 5, 20, 30], [39, 39, 1, 1], [0, 0, 7, 40], [10, 2, 30, 8]])
    flip = torch.tensor([False, True, True, False, True])
    together = render(images, box, flip, 24)
    alone = torch.cat([render(images[i : i + 1], box[i : i + 1], flip[i : i + 1], 24) for i in range(5)])
    assert torch.equal(together, alone)


def test_a_whole_image_at_its_own_size_is_itself() -> None:
    image = torch.arange(3 * 16 * 16, dtype=torch.int64).remainder(256).to(torch.uint8).view(1, 3, 16, 16)
    whole = torch.tensor([[0, 0, 16, 16]])
    assert torch.equal(render(image, whole, torch.tensor([False]), 16), image / 255)
    assert torch.equal(render(image, whole, torch.tensor([True]), 16), image.flip(3) / 255)


def reference_box(u: np.ndarray, height: int, width: int, scale: tuple, ratio: tuple) -> tuple[int, int, int, int]:
    """RandomResizedCrop as torchvision documents it, one box at a time."""
    for area, aspect, y, x in u.reshape(10, 4):
        target = height * width * (scale[0] + (scale[1] - scale[0]) * area)
        shape = math.exp(math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * aspect)
        w, h = round(math.sqrt(target * shape)), round(math.sqrt(target / shape))
        if 0 < w <= width and 0 < h <= height:
            return int(y * (height - h + 1)), int(x * (width - w + 1)), h, w
    h, w = height, width
    if width / height < ratio[0]:
        h = round(width / ratio[0])
    elif width / height > ratio[1]:
        w = round(height * ratio[1])
    return (height - h) // 2, (width - w) // 2, h, w


@settings(max_examples=200)
@given(
    st.integers(0, 10**6),
    st.integers(1, 300),
    st.integers(1, 300),
    st.sampled_from([(0.08, 1.0), (0.3, 1.0), (0.9, 1.0)]),
)
def test_boxes_follow_the_rule_and_stay_inside(seed: int, height: int, width: int, scale: tuple[float, float]) -> None:
    u = np.random.default_rng(seed).random((16, CROP_WIDTH))
    boxes = crop_boxes(u, height, width, scale, (0.75, 4 / 3))
    assert [tuple(box) for box in boxes.tolist()] == [
        reference_box(row, height, width, scale, (0.75, 4 / 3)) for row in u
    ]
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2:] >= 1).all()
    assert (boxes[:, 0] + boxes[:, 2] <= height).all()
    assert (boxes[:, 1] + boxes[:, 3] <= width).all()


def test_box_areas_are_spread_as_torchvision_spreads_them() -> None:
    """Mean area of the default crop, against torchvision's own draws."""
    from torchvision.transforms import RandomResizedCrop

    u = uniforms("test", 0, 0, 20000, CROP_WIDTH)
    ours = crop_boxes(u, 64, 64, (0.08, 1.0), (0.75, 4 / 3))
    torch.manual_seed(0)
    image = torch.zeros(3, 64, 64)
    theirs = np.array([RandomResizedCrop.get_params(image, [0.08, 1.0], [0.75, 4 / 3]) for _ in range(20000)])
    for column in range(4):
        assert ours[:, column].mean() == pytest.approx(theirs[:, column].mean(), rel=0.03)


def test_draws_are_addressed_not_sequenced() -> None:
    small, large = uniforms("crop", 1, 3, 10, 5), uniforms("crop", 1, 3, 1000, 5)
    assert np.array_equal(small, large[:10])
    assert not np.array_equal(small, uniforms("crop", 1, 4, 10, 5))
    assert not np.array_equal(small, uniforms("crop", 2, 3, 10, 5))
    assert not np.array_equal(small, uniforms("other", 1, 3, 10, 5))
    assert sorted(permutation("order", 0, 0, 50)) == list(range(50))


def test_a_view_is_the_same_whenever_it_is_drawn() -> None:
    settings = view_settings()
    third = draw_view(settings, 3)
    for view in (0, 7, 1):
        draw_view(settings, view)
    again = draw_view(view_settings(), 3)
    for name in ("image", "box", "flip", "partner", "lam", "cut"):
        assert np.array_equal(getattr(third, name), getattr(again, name))
    assert not np.array_equal(third.box, draw_view(settings, 4).box)


@settings(max_examples=50)
@given(count=st.integers(1, 60), batch=st.integers(1, 20), view=st.integers(0, 5))
def test_partners_stay_inside_their_batch(count: int, batch: int, view: int) -> None:
    drawn = draw_view(view_settings(count=count, batch=batch), view)
    for start in range(0, count, batch):
        part = drawn.partner[start : start + batch]
        assert sorted(part) == list(range(len(part)))
    assert sorted(drawn.image) == list(range(count))
    assert len(drawn.cut) == len(drawn.lam) == -(-count // batch)


# size 32, lam 0.75: side floor(32 * 0.5) = 16; centre (4, 28) is clipped to rows 0..12, columns 20..32
def test_cutmix_rectangle_by_hand() -> None:
    centre = np.array([[4 / 32, 28 / 32], [16 / 32, 16 / 32]])
    cut = cutmix_rectangles(np.array([0.75, 0.0]), centre, 32)
    assert cut.tolist() == [[0, 20, 12, 32], [0, 0, 32, 32]]


def test_cutmix_replaces_the_rectangle_only(rng: np.random.Generator) -> None:
    x = torch.from_numpy(rng.random((3, 2, 8, 8), dtype=np.float32))
    partner, cut = torch.tensor([1, 2, 0]), torch.tensor([[2, 3, 5, 8], [0, 0, 0, 0], [0, 0, 8, 8]])
    mixed = cutmix(x, partner, cut)
    expected = x.clone()
    expected[0, :, 2:5, 3:8] = x[1, :, 2:5, 3:8]
    expected[2] = x[0]
    assert torch.equal(mixed, expected)


def test_batches_rendered_together_in_any_order_equal_batches_rendered_alone(rng: np.random.Generator) -> None:
    images = torch.from_numpy(rng.integers(0, 256, (20, 3, 32, 32), dtype=np.uint8))
    view = draw_view(view_settings(), 0)
    parts = [np.arange(0, 8), np.arange(8, 16), np.arange(16, 20)]
    alone = [render_batches(images, view, rows, rows // 8, 32) for rows in parts]
    order = [2, 0, 0, 1]
    rows = np.concatenate([parts[i] for i in order])
    number = np.repeat(order, [len(parts[i]) for i in order])
    together = render_batches(images, view, rows, number, 32)
    assert torch.equal(together, torch.cat([alone[i] for i in order]))


def test_no_mixing_leaves_crops_alone() -> None:
    view = draw_view(view_settings(mix="none"), 0)
    assert not view.cut.any()
    assert (view.lam == 1).all()


def test_beta_by_inversion_has_the_right_moments() -> None:
    lam = draw_view(view_settings(count=20000, batch=1, mix_alpha=0.4), 0).lam
    assert lam.mean() == pytest.approx(0.5, abs=0.01)
    assert lam.var() == pytest.approx(1 / (4 * (2 * 0.4 + 1)), rel=0.03)


def test_normalize() -> None:
    x = torch.full((1, 3, 1, 1), 0.5)
    assert normalize(x, (0.5, 0.4, 0.3), (1.0, 0.1, 0.2)).flatten().tolist() == pytest.approx([0, 1, 1], abs=1e-6)
