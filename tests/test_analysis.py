"""Analyses: every number against a value by hand or a few lines of NumPy."""

import importlib.util
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision.models
import torchvision.transforms.functional as TF
from torch import Tensor, nn

from conftest import labels_spec, layer_seeds, make_labels, run_spec
from hald.analysis import color_jitter as jitter
from hald.analysis import consistency
from hald.analysis import labels_by_image as stored
from hald.analysis.frozen_network import Probe
from hald.analysis.kinds.crop_consistency import compute as crop_consistency
from hald.analysis.kinds.drift import compute as drift
from hald.analysis.kinds.embedding import compute as embedding
from hald.analysis.kinds.gradients import compute as gradients
from hald.analysis.kinds.gradients.figure import smoothed
from hald.analysis.kinds.landscape import compute as landscape
from hald.analysis.kinds.lvsd import compute as lvsd
from hald.analysis.kinds.theory import compute as theory
from hald.analysis.kinds.updates.compute import measure_logits, measure_steps, size_of
from hald.analysis.random_crops import CropRule, draw_crops
from hald.analysis.spec import AnalysisSpec
from hald.analysis.variance import total_variance
from hald.errors import UserError
from hald.evaluation.batches import Batch
from hald.evaluation.hard_batches import HardBatches
from hald.evaluation.student import Student
from hald.jobs.job import Job
from hald.labels.store import LabelStore
from hald.networks.build import build_model
from hald.numerics.views import normalize
from hald.plain import to_dict
from hald.preflight import check_packages

MEAN, STD = (0.3, 0.4, 0.5), (0.2, 0.3, 0.4)


class Means(nn.Module):
    """Logits = a weight times the mean of each colour: what a crop answers can be worked out by hand."""

    def __init__(self, factor: float = 3.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(factor))

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3)) * self.weight


def probe(model: nn.Module, size: int = 8) -> Probe:
    return Probe(model, MEAN, STD, size)


def pictures(rng: np.random.Generator, count: int, size: int = 12) -> Tensor:
    return torch.from_numpy(rng.integers(0, 256, (count, 3, size, size), dtype=np.uint8))


def softmax(z: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(z - z.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


# --- crops and colours ---


@pytest.mark.parametrize(
    ("ours", "theirs", "factor"),
    [
        (jitter.brightness, TF.adjust_brightness, 1.4),
        (jitter.contrast, TF.adjust_contrast, 0.6),
        (jitter.saturation, TF.adjust_saturation, 1.3),
        (jitter.hue, TF.adjust_hue, 0.1),
        (jitter.hue, TF.adjust_hue, -0.07),
    ],
)
def test_every_change_of_colour_is_torchvisions(ours, theirs, factor, rng) -> None:  # noqa: ANN001
    x = torch.from_numpy(rng.random((4, 3, 5, 5))).float()
    x[0] = 0.5  # grey: no hue
    x[1, :, 0, 0] = torch.tensor([1.0, 0.0, 0.0])
    x[1, :, 0, 1] = torch.tensor([0.7, 0.7, 0.1])  # two channels share the maximum
    expected = torch.stack([theirs(picture, factor) for picture in x])
    torch.testing.assert_close(ours(x, torch.full((4, 1, 1, 1), factor)), expected, atol=2e-6, rtol=0)


def test_jitter_uses_each_images_own_strengths_and_order(rng) -> None:  # noqa: ANN001
    x = torch.from_numpy(rng.random((6, 3, 5, 5))).float()
    u = rng.random((6, 8))
    expected = []
    for picture, draws in zip(x, u, strict=True):
        factors = [0.6 + 0.8 * draws[0], 0.6 + 0.8 * draws[1], 0.6 + 0.8 * draws[2], -0.1 + 0.2 * draws[3]]
        changes = [TF.adjust_brightness, TF.adjust_contrast, TF.adjust_saturation, TF.adjust_hue]
        for kind in sorted(range(4), key=lambda k, ranks=draws[4:]: ranks[k]):
            picture = changes[kind](picture, factors[kind])
        expected.append(picture)
    got = jitter.jitter(x, u, (0.4, 0.4, 0.4, 0.1))
    torch.testing.assert_close(got, torch.stack(expected), atol=5e-6, rtol=0)


def test_crops_of_an_image_do_not_depend_on_how_many_there_are() -> None:
    few, many = (draw_crops(lvsd.STRONG, "t", 3, 1, count, (12, 10)) for count in (4, 9))
    for part in ("box", "flip", "colour"):
        np.testing.assert_array_equal(getattr(few, part), getattr(many, part)[:4])
    assert (draw_crops(lvsd.STRONG, "t", 3, 2, 4, (12, 10)).box != few.box).any()


def test_the_central_crop_is_the_same_every_time() -> None:
    drawn = draw_crops(CropRule(central=0.875), "t", 0, 0, 3, (224, 240))
    assert drawn.box.tolist() == [[14, 22, 196, 196]] * 3
    assert not drawn.flip.any()


# --- drift ratio ---


def test_trace_is_that_of_numpys_covariance(rng) -> None:  # noqa: ANN001
    p = softmax(rng.normal(size=(8, 5, 4)))
    expected = [np.trace(np.cov(p[:, i].T, ddof=1)) for i in range(5)]
    np.testing.assert_allclose(total_variance(torch.from_numpy(p)).numpy(), expected)


def test_summary_of_ratios_by_hand() -> None:
    definition = lvsd.Definition("hand", CropRule(), eps=1e-8)
    found = lvsd.summary(np.array([0.0, 0.0, 0.99999999]), np.array([1e-6, 1e-4, 0.1]), definition)
    assert found.log_ratio == pytest.approx([2.0, 4.0, -1.0])
    assert found.mean_log_ratio == pytest.approx(5 / 3)
    assert found.log_mean_ratio == pytest.approx(math.log10((100 + 10000 + 0.1) / 3))
    assert found.quantiles["0.5"] == pytest.approx(2.0)
    assert found.share_above_one == pytest.approx(2 / 3)
    assert found.mean_strong == pytest.approx(0.1 / 3 + 1.01e-4 / 3)


def test_images_that_never_vary_have_no_logarithm() -> None:
    found = lvsd.summary(np.zeros(2), np.array([0.0, 1e-8]), lvsd.varied_definition())
    assert found.without_ratio == 1
    assert found.log_ratio == pytest.approx([0.0])
    nothing = lvsd.summary(np.zeros(2), np.zeros(2), lvsd.varied_definition())
    assert (nothing.mean_log_ratio, nothing.quantiles, nothing.share_above_one) == (None, {}, 0.0)


def test_drift_by_both_definitions(rng) -> None:  # noqa: ANN001
    images, rows = pictures(rng, 7), np.array([1, 2, 5])
    paper = lvsd.lvsd(probe(Means()), images, rows, lvsd.paper_definition(), seed=1)
    varied = lvsd.lvsd(probe(Means()), images, rows, lvsd.varied_definition(), seed=1)
    assert paper.strong == varied.strong  # the same crops
    assert max(paper.weak) < 1e-20  # the paper's weak view never varies: R is Tr(strong) / eps
    assert paper.log_ratio == pytest.approx([math.log10(t * 1e8) for t in paper.strong])
    assert 0 < varied.mean_weak < varied.mean_strong
    assert json.loads(json.dumps(to_dict(varied)))["definition"] == "varied"


def test_drift_of_one_image_from_its_crops(rng) -> None:  # noqa: ANN001
    images = pictures(rng, 3)
    rule = CropRule(scale=(0.2, 1.0), flip=0.5)
    p = []
    for k in range(4):
        top, left, height, width = draw_crops(rule, "s", 9, k, 3, (12, 12)).box[2]
        crop = TF.resized_crop(images[2].float() / 255, top, left, height, width, [8, 8], antialias=True)
        p.append(softmax(3 * normalize(crop[None], MEAN, STD).mean(dim=(2, 3)).numpy().astype(np.float64)[0]))
    expected = np.var(p, axis=0, ddof=1).sum()
    found = lvsd.traces(probe(Means()), images, np.array([0, 2]), rule, 4, "s", 9)
    assert found[1] == pytest.approx(expected, rel=1e-4)


def test_drift_refuses_a_single_draw(rng) -> None:  # noqa: ANN001
    with pytest.raises(UserError, match="draws = 1"):
        lvsd.lvsd(probe(Means()), pictures(rng, 2), np.arange(2), lvsd.varied_definition(draws=1), 0)


# --- consistency ---


def test_cosine_and_divergence_by_numpy(rng) -> None:  # noqa: ANN001
    a, b = rng.normal(size=(2, 5, 4)) * 3
    p, q = softmax(a), softmax(b)
    m = (p + q) / 2
    js = 0.5 * (p * np.log(p / m)).sum(1) + 0.5 * (q * np.log(q / m)).sum(1)
    cosine = (p * q).sum(1) / np.linalg.norm(p, axis=1) / np.linalg.norm(q, axis=1)
    first, second = torch.from_numpy(a), torch.from_numpy(b)
    np.testing.assert_allclose(consistency.jensen_shannon(first, second).numpy(), js)
    np.testing.assert_allclose(consistency.cosine(first, second).numpy(), cosine)
    apart = consistency.jensen_shannon(torch.tensor([[900.0, 0.0]]), torch.tensor([[0.0, 900.0]]))
    assert float(apart) == pytest.approx(math.log(2))


def test_due_images_are_the_first_of_each_class() -> None:
    labels = np.array([1, 0, 1, 2, 1, 0])
    assert crop_consistency.due(labels, np.array([1, 2, 5])).tolist() == [0, 1, 2, 3]
    assert crop_consistency.due(labels, np.array([0, -3, 1])).tolist() == [3]


def test_other_images_are_never_the_same(rng) -> None:  # noqa: ANN001
    others = np.concatenate([crop_consistency.other_images(np.arange(4), rng.random(4)) for _ in range(500)])
    assert (others.reshape(-1, 4) != np.arange(4)).all()
    assert {(i, j) for i, j in zip(np.tile(np.arange(4), 500), others, strict=True)} == {
        (i, j) for i in range(4) for j in range(4) if i != j
    }


class Counting(Means):
    """Counts the crops it is asked about."""

    seen = 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return super().forward(x)


def test_every_class_reaches_its_quota_even_a_small_one(rng) -> None:  # noqa: ANN001
    images = pictures(rng, 5)
    images[:4] = images[:4, :, :1, :1]  # plain colours: all crops of one image agree
    labels = np.array([0, 0, 0, 0, 1])
    network = Counting()
    found = crop_consistency.crop_consistency(probe(network), images, labels, pairs=6, seed=0)
    assert network.seen == 3 * 12  # 6 pairs of both kinds in both classes: class 1 needs six passes, class 0 two
    assert found.per_class[0]["same_cosine"] == pytest.approx(1)
    assert found.per_class[0]["same_js"] == pytest.approx(0, abs=1e-12)
    assert found.per_class[1]["same_cosine"] < 1
    assert found.same_image.cosine == pytest.approx((1 + found.per_class[1]["same_cosine"]) / 2)
    assert found.other_image.js > found.same_image.js


def test_an_empty_class_is_refused(rng) -> None:  # noqa: ANN001
    with pytest.raises(UserError, match=r"empty classes \[1\]"):
        crop_consistency.crop_consistency(probe(Means()), pictures(rng, 2), np.array([0, 2]), 1, 0)


def test_two_networks_are_compared_at_both_temperatures(rng) -> None:  # noqa: ANN001
    images = pictures(rng, 3)
    images[:] = images[:, :, :1, :1]  # plain colours: any crop has the picture's mean
    x = ((images[:, :, 0, 0].numpy() / 255 - MEAN) / STD).astype(np.float64)
    found = consistency.model_consistency(probe(Means(1.0)), probe(Means(-2.0)), images, seed=0, crops=2)
    for t in (0.5, 1.0):
        p, q = softmax(x / t), softmax(-2 * x / t)
        cosine = (p * q).sum(1) / np.linalg.norm(p, axis=1) / np.linalg.norm(q, axis=1)
        assert found.by_temperature[f"{t:g}"].cosine == pytest.approx(cosine.mean(), rel=1e-5)
    same = consistency.model_consistency(probe(Means()), probe(Means()), images.numpy(), seed=0, crops=1)
    assert same.by_temperature["1"].js == pytest.approx(0, abs=1e-12)
    assert to_dict(found)["by_temperature"]["0.5"]["js"] > 0


def test_networks_of_different_inputs_are_refused(rng) -> None:  # noqa: ANN001
    with pytest.raises(UserError, match="8 and 16 px"):
        consistency.model_consistency(probe(Means()), probe(Means(), 16), pictures(rng, 2), 0)


# --- gradients ---


def one_batch(rng: np.random.Generator) -> tuple[Batch, Tensor]:
    x = torch.from_numpy(rng.normal(size=(4, 3))).float()
    target = torch.from_numpy(softmax(rng.normal(size=(4, 3)))).float()
    return Batch(x, target), torch.from_numpy(rng.normal(size=(4, 3)) * 5).float()


def test_gradient_cosine_of_a_linear_student_by_hand(rng) -> None:  # noqa: ANN001
    student = nn.Linear(3, 3, bias=False)
    batch, answers = one_batch(rng)
    w = student.weight.detach().numpy().astype(np.float64)
    x = batch.x.numpy().astype(np.float64)
    z = x @ w.T
    soft = ((softmax(z / 20) - softmax(answers.numpy().astype(np.float64) / 20)) / 20).T @ x
    hard = (softmax(z) - batch.target.numpy()).T @ x
    expected = (soft * hard).sum() / np.linalg.norm(soft) / np.linalg.norm(hard)
    optimizer = torch.optim.SGD(student.parameters(), lr=1.0)
    found = gradients.similarity_epoch(student, optimizer, iter([(batch, answers)]), 20.0)
    assert found.tolist() == pytest.approx([expected], rel=1e-4)
    np.testing.assert_allclose(student.weight.detach().numpy(), w - soft / 4, atol=1e-6)  # the KL step alone


def test_one_forward_per_step_and_a_teacher_that_stays_as_it_is(rng) -> None:  # noqa: ANN001
    spec = gradients.released_spec(run_spec(batch=4, size=32), epochs=2)
    student, teacher = (build_model("small/resnet10-w4", 10, 32) for _ in range(2))
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    images, labels = pictures(rng, 8, 32), torch.arange(8)
    with layer_seeds() as seeds:
        found = gradients.gradient_similarity(
            spec, student, Probe(teacher, spec.mean, spec.std, 32), images, labels, seed=0
        )
    assert len(set(seeds)) == spec.epochs == 2
    assert len(found.cosine) == 4
    assert found.steps_per_epoch == 2
    assert all(-1 <= value <= 1 for value in found.cosine)
    assert student.bn1.num_batches_tracked == 4
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    assert (spec.lr, spec.weight_decay, spec.eta) == (1e-3, 1e-4, 2.0)


def test_the_teacher_normalises_by_batch_and_with_its_own_statistics(rng) -> None:  # noqa: ANN001
    """One batch is the whole set: its answers are those of the same pictures in train mode."""
    spec = gradients.released_spec(run_spec(batch=8, size=32), epochs=1)
    teacher, images = build_model("small/resnet10-w4", 10, 32), pictures(rng, 8, 32)
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
    batches = list(HardBatches(spec, images, torch.arange(8)).epoch(0, 0))
    ((batch, answers),) = gradients._labelled(iter(batches), spec, Probe(teacher, mean, std, 32))
    pixels = batch.x * torch.tensor(spec.std).view(1, 3, 1, 1) + torch.tensor(spec.mean).view(1, 3, 1, 1)
    expected = teacher.train()((pixels - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(std).view(1, 3, 1, 1))
    torch.testing.assert_close(answers, expected)


def test_smoothing_is_a_gaussian_mean(rng) -> None:  # noqa: ANN001
    series = rng.normal(size=60)
    offsets = np.arange(-8, 9)
    weights = np.exp(-(offsets**2) / (2 * 2.0**2))
    expected = (weights / weights.sum() * series[30 + offsets]).sum()
    assert smoothed(series, 2.0)[30] == pytest.approx(expected)
    np.testing.assert_allclose(smoothed(np.full(5, 0.3), 70.0), 0.3)


# --- landscape ---


class Bowl(nn.Module):
    """A linear layer after pooling, with a BN whose weight must stay."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(3)
        self.fc = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.bn(x).mean(dim=(2, 3)))


def test_directions_are_unit_orthogonal_seeded_and_leave_bn_and_biases() -> None:
    torch.manual_seed(0)
    model, other = (build_model("small/resnet10-w4", 10, 32) for _ in range(2))
    plane = landscape.make_plane(model, other, seed=5)
    first, second = (torch.cat([d.flatten() for d in part.values()]) for part in (plane.first, plane.second))
    assert float(first.norm()) == pytest.approx(1, abs=1e-5)
    assert float(second.norm()) == pytest.approx(1, abs=1e-5)
    assert float(first @ second) == pytest.approx(0, abs=1e-5)
    apart = [(a - b).flatten() for a, b in zip(model.parameters(), other.parameters(), strict=True)]
    assert plane.radius == pytest.approx(0.1 * float(torch.cat(apart).detach().norm()), rel=1e-5)
    assert set(plane.centre) == {n for n, p in model.named_parameters() if p.ndim > 1}
    filters = plane.first["conv1.weight"].flatten(1).norm(dim=1)
    assert torch.allclose(filters, filters[:1].expand_as(filters))
    again, different = (landscape.make_plane(model, other, seed).second["fc.weight"] for seed in (5, 6))
    assert torch.equal(again, plane.second["fc.weight"])
    assert not torch.equal(different, again)


def test_a_grid_of_losses_by_numpy(rng) -> None:  # noqa: ANN001
    torch.manual_seed(1)
    model, other = Bowl(), Bowl()
    images, labels = pictures(rng, 5, 8), np.array([0, 1, 1, 0, 1])
    plane = landscape.make_plane(model, other, seed=0)
    found = landscape.landscape(probe(model), plane, images, labels, resolution=5, batch=2)
    x = ((images.numpy() / 255 - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))).mean((2, 3))
    x /= np.sqrt(1 + 1e-5)
    u, v = plane.first["fc.weight"].numpy(), plane.second["fc.weight"].numpy()
    for i, alpha in enumerate(found.steps):
        for j, beta in enumerate(found.steps):
            w = model.fc.weight.detach().numpy() + plane.radius * (alpha * u + beta * v)
            p = softmax(x @ w.T + model.fc.bias.detach().numpy())
            assert found.losses[i][j] == pytest.approx(-np.log(p[np.arange(5), labels]).mean(), rel=1e-5)
    assert found.centre == found.losses[2][2]
    assert model.bn.num_batches_tracked == 0


def test_sharpness_of_a_known_bowl() -> None:
    a = np.linspace(-1, 1, 9)
    alpha, beta = np.meshgrid(a, a, indexing="ij")
    losses = 1.5 * alpha**2 + 0.5 * beta**2 + 0.8 * alpha * beta + 0.3 * alpha
    expected = np.linalg.eigvalsh([[3.0, 0.8], [0.8, 1.0]]).max()
    assert landscape.sharpness(losses, 0.25) == pytest.approx(expected)


def test_landscape_refuses_what_has_no_plane(rng) -> None:  # noqa: ANN001
    model = Bowl()
    with pytest.raises(UserError, match="same weights"):
        landscape.make_plane(model, model, 0)
    with pytest.raises(UserError, match="one architecture"):
        landscape.make_plane(model, Means(), 0)
    plane = landscape.make_plane(model, Bowl(), 0)
    with pytest.raises(UserError, match="found 4"):
        landscape.landscape(probe(model), plane, pictures(rng, 2, 8), np.zeros(2, dtype=np.int64), resolution=4)


# --- embedding ---


def test_features_are_what_the_classifier_sees(rng) -> None:  # noqa: ANN001
    images = pictures(rng, 3, 32)
    model = build_model("small/resnet10-w4", 10, 32).eval()
    found = embedding.penultimate(probe(model, 32), images, np.array([2, 0]))
    with torch.no_grad():
        expected = model.features(normalize(images[[2, 0]].float() / 255, MEAN, STD))
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)
    assert not embedding.classifier(model)._forward_pre_hooks  # the network is left as it was


@pytest.mark.parametrize(("arch", "width"), [("shufflenet_v2_x0_5", 1024), ("mobilenet_v2", 1280)])
def test_features_of_torchvisions_networks(arch: str, width: int, rng) -> None:  # noqa: ANN001
    model = torchvision.models.get_model(arch, num_classes=4).eval()
    assert embedding.penultimate(probe(model, 32), pictures(rng, 2, 32), np.arange(2)).shape == (2, width)


def test_pca_keeps_the_plane_in_which_points_lie(rng) -> None:  # noqa: ANN001
    plane = rng.normal(size=(20, 2)) * [3, 1]
    features = plane @ np.linalg.qr(rng.normal(size=(5, 2)))[0].T + 7
    points = embedding.pca(features)
    distance = np.linalg.norm(features[:, None] - features[None], axis=2)
    np.testing.assert_allclose(np.linalg.norm(points[:, None] - points[None], axis=2), distance, atol=1e-9)
    assert points.var(axis=0)[0] > points.var(axis=0)[1]


def silhouette(x: np.ndarray, labels: np.ndarray) -> float:
    distance = np.linalg.norm(x[:, None] - x[None], axis=2)
    scores = []
    for i, label in enumerate(labels):
        own = labels == label
        a = distance[i, own].sum() / (own.sum() - 1)
        b = min(distance[i, labels == other].mean() for other in set(labels.tolist()) - {label})
        scores.append((b - a) / max(a, b))
    return float(np.mean(scores))


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.mean(dim=(2, 3)))


def test_embedding_scores_features_and_plane(rng) -> None:  # noqa: ANN001
    images, labels = pictures(rng, 9, 8), np.array([0, 1, 2] * 3)
    found = embedding.embedding(probe(Pooled()), images, labels, np.array([0, 2]), seed=0, how="pca")
    features = normalize(images[labels != 1].double() / 255, MEAN, STD).mean(dim=(2, 3)).numpy()
    assert found.labels == [0, 2, 0, 2, 0, 2]
    assert found.silhouette_features == pytest.approx(silhouette(features, labels[labels != 1]), rel=1e-4)
    assert found.silhouette_plane == pytest.approx(silhouette(np.array(found.points), labels[labels != 1]))
    assert found.how == "pca"


def test_an_embedding_by_umap_is_refused_before_any_work_where_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    specs = [AnalysisSpec("embedding", "", (), None, {"plane": plane}, threads=1) for plane in ("umap", "pca")]
    by_umap, by_pca = (Job(spec, Path(), {}, {}, Path(), stage="analysis") for spec in specs)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    check_packages([by_pca, replace(by_umap, stage="evaluate", spec=None)])
    with pytest.raises(UserError, match="pip install umap-learn"):
        check_packages([by_pca, by_umap])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    check_packages([by_umap])


# --- theory ---


def test_variance_law_holds_for_independent_labels_and_fails_for_repeated_ones(rng) -> None:  # noqa: ANN001
    p = torch.from_numpy(softmax(rng.normal(size=(16, 400, 5))))
    for point in theory.variance_law(p):
        assert abs(point.measured - point.expected) <= 4 * point.error + 1e-15
    assert [point.s for point in theory.variance_law(p)] == [1, 2, 4, 8]
    repeated = theory.variance_law(p[:8].repeat_interleave(2, dim=0))[1]
    assert repeated.measured - repeated.expected > 10 * repeated.error


def test_variance_points_by_numpy(rng) -> None:  # noqa: ANN001
    p = softmax(rng.normal(size=(5, 3, 4)))
    means = p[:4].reshape(2, 2, 3, 4).mean(axis=1)
    point = theory.variance_law(torch.from_numpy(p))[1]
    assert point.s == 2
    assert point.measured == pytest.approx(means.var(axis=0, ddof=1).sum(axis=1).mean())
    assert point.expected == pytest.approx(p.var(axis=0, ddof=1).sum(axis=1).mean() / 2)


def test_cantelli_by_hand() -> None:
    # image 0: leads 0.6, -0.2, 0.5, 0.1 over class 1; image 1 prefers class 2 on average
    p = torch.tensor(
        [
            [[0.8, 0.2, 0.0], [0.1, 0.2, 0.7]],
            [[0.4, 0.6, 0.0], [0.1, 0.2, 0.7]],
            [[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]],
            [[0.5, 0.4, 0.1], [0.1, 0.2, 0.7]],
        ]
    )
    found = theory.inversion(p, np.array([0, 1]))
    leads = np.array([0.6, -0.2, 0.5, 0.1])
    gap, variance = leads.mean(), np.cov(p[:, 0].numpy().T, ddof=1)
    variance = variance[0, 0] + variance[1, 1] - 2 * variance[0, 1]
    assert (found.images, found.already_inverted) == (1, 1)
    assert [point.measured for point in found.points] == [0.25, 0.0]
    assert found.points[0].bound == pytest.approx(variance / (variance + gap**2), rel=1e-5)
    assert found.points[1].bound == pytest.approx(variance / 2 / (variance / 2 + gap**2), rel=1e-5)
    assert found.points[0].above_bound == 0


def test_a_tie_counts_as_an_inversion() -> None:
    lead = torch.tensor([0.0, 1.0])
    p = torch.stack([torch.stack([lead, torch.zeros(2)], dim=1)] * 2, dim=1)  # half of the leads are 0
    found = theory.inversion(p, np.array([0, 0]))
    assert found.points[0].measured == 0.5
    assert found.points[0].bound == pytest.approx(0.5 / (0.5 + 0.25))


def test_deviation_law_by_numpy(rng) -> None:  # noqa: ANN001
    losses = rng.exponential(size=(8, 50))
    losses[:, 0] = 2.0  # does not vary: left out
    rest = losses[:, 1:]
    sigma = rest.std(axis=0)
    kappa = ((rest - rest.mean(axis=0)) ** 4).mean(axis=0) / sigma**4
    points = theory.deviation_law(losses)
    expected = np.mean(sigma / 2 * 16 / (25 * math.sqrt(5)) * np.minimum(1 / kappa, 1 / 3))
    assert points[2].s == 4
    assert points[2].bound == pytest.approx(expected)
    measured = np.abs(rest.reshape(2, 4, 49).mean(axis=1) - rest.mean(axis=0)).mean()
    assert points[2].measured == pytest.approx(measured)
    assert all(point.measured >= point.bound for point in points)


def test_effective_sample_size() -> None:
    assert gradients.effective_sample_size(10, 0.6) == pytest.approx(15.625)
    with pytest.raises(UserError, match="found 1"):
        gradients.effective_sample_size(10, 1.0)


# --- stores ---


@pytest.fixture(scope="module")
def labels(real_set: Path, teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> LabelStore:
    folder = tmp_path_factory.mktemp("labels") / "labels.zarr"
    return LabelStore(make_labels(labels_spec(codec="f16"), real_set, [teacher], folder, range(4)))


def teacher_probe(store: LabelStore) -> Probe:
    from hald.squeeze.teacher import load_teacher

    model, record = load_teacher(store.teacher(0), store.header.classes, 0.0, torch.device("cpu"))
    return Probe(model, record["mean"], record["std"], store.header.size)


def test_stored_logits_are_sorted_by_image(labels: LabelStore) -> None:
    found = stored.image_logits(labels, 4, np.array([13, 2]), torch.device("cpu"))
    for view in range(4):
        drawn = labels.drawn(view)
        for i, image in enumerate((13, 2)):
            row = np.asarray(labels.array("q")[view])[int(np.flatnonzero(drawn.image == image)[0])]
            np.testing.assert_allclose(found[view, i].numpy(), row.astype(np.float32))
    traces = stored.stored_traces(labels, 4, 1.0, torch.device("cpu"))[[13, 2]]
    p = softmax(found.numpy().astype(np.float64))
    np.testing.assert_allclose(traces.numpy(), p.var(axis=0, ddof=1).sum(axis=1), rtol=1e-9)


def test_the_teachers_own_losses_are_nothing(labels: LabelStore) -> None:
    own = stored.view_losses(teacher_probe(labels), labels, 3)
    assert own.shape == (3, 20)
    assert np.abs(own).max() < 1e-6
    torch.manual_seed(3)
    student = Probe(build_model("small/resnet10-w4", 10, 32), (0.3,) * 3, (0.3,) * 3, 32)
    assert stored.view_losses(student, labels, 2, temperature=1.0).min() > 1e-4


def test_a_loss_belongs_to_its_image(labels: LabelStore) -> None:
    torch.manual_seed(3)
    student = Probe(build_model("small/resnet10-w4", 10, 32), (0.3,) * 3, (0.3,) * 3, 32)
    losses = stored.view_losses(student, labels, 2, temperature=2.0)
    drawn, image = labels.drawn(1), 7
    position = int(np.flatnonzero(drawn.image == image)[0])
    from hald.numerics.views import render_batches

    rows = np.arange(position // 8 * 8, min(position // 8 * 8 + 8, 20))
    pixels = render_batches(torch.from_numpy(labels.images()), drawn, rows, rows // 8, 32)
    with torch.no_grad():
        z = student.model.eval()((pixels - 0.3) / 0.3)[position % 8].double().numpy()
    answer = np.asarray(labels.array("q")[1])[position].astype(np.float64)
    p, q = softmax(answer / 2), softmax(z / 2)
    assert losses[1, image] == pytest.approx((p * np.log(p / q)).sum(), rel=1e-4)


def test_too_many_views_are_refused(labels: LabelStore) -> None:
    with pytest.raises(UserError, match="has 4 views, 9 were asked for"):
        stored.image_logits(labels, 9, np.arange(2), torch.device("cpu"))


def test_drift_examples_show_the_least_mixed_crops(labels: LabelStore) -> None:
    examples = drift.drift_examples(labels, 4, np.array([3, 12]), crops=2, top=3)
    assert [example.image for example in examples] == [3, 12]
    assert [example.name for example in examples] == [labels.header.classes[1], labels.header.classes[6]]
    shares = {}
    for view in range(4):
        drawn = labels.drawn(view)
        position = int(np.flatnonzero(drawn.image == 12)[0])
        top, left, bottom, right = drawn.cut[position // 8].tolist()
        shares[view] = 1 - (bottom - top) * (right - left) / 32**2
    crops = examples[1].crops
    assert sorted(shares[crop.view] for crop in crops) == sorted(shares.values())[-2:]
    first = crops[0]
    q = np.asarray(labels.array("q")[first.view])[first.position].astype(np.float64)
    best = np.argsort(-softmax(q))[:3]
    assert [answer.name for answer in first.top] == [labels.header.classes[c] for c in best]
    assert [answer.probability for answer in first.top] == pytest.approx(softmax(q)[best].tolist(), rel=1e-5)
    assert json.loads(json.dumps([to_dict(example) for example in examples]))


def test_pictures_of_crops_are_what_the_teacher_saw(labels: LabelStore) -> None:
    examples = drift.drift_examples(labels, 4, np.array([3]), crops=4)
    found = drift.crop_pictures(labels, examples)
    teacher = teacher_probe(labels)
    for crop, picture in zip(examples[0].crops, found[0], strict=True):
        assert picture.shape == (32, 32, 3)
        logits = teacher.logits(torch.from_numpy(picture.transpose(2, 0, 1).copy())[None].float() / 255)[0]
        p = dict(zip(labels.header.classes, logits.softmax(0).tolist(), strict=True))
        assert [p[answer.name] for answer in crop.top] == pytest.approx([a.probability for a in crop.top], abs=0.02)
        assert p[crop.top[0].name] > max(p.values()) - 0.02  # a picture has whole grey levels, so ties may turn


def test_most_drifting_images_are_of_different_classes(labels: LabelStore) -> None:
    found = drift.most_drifting(labels, 4, 5)
    traces = stored.stored_traces(labels, 4, 1.0, torch.device("cpu")).numpy()
    best = {c: traces[2 * c : 2 * c + 2].max() for c in range(10)}
    assert traces[found].tolist() == sorted(best.values(), reverse=True)[:5]
    with pytest.raises(UserError, match="only 4 views"):
        drift.drift_examples(labels, 4, found, crops=5)


def test_laws_run_on_a_store(labels: LabelStore) -> None:
    p = stored.image_logits(labels, 4, np.arange(20), torch.device("cpu")).softmax(dim=2)
    assert [point.s for point in theory.variance_law(p)] == [1, 2]
    found = theory.inversion(p, stored.image_labels(labels))
    assert found.images + found.already_inverted == 20


def student_of(optimizer: torch.optim.AdamW) -> Student:
    """A network that answers with what it is asked."""
    scaler = torch.amp.GradScaler(enabled=False)
    return Student(torch.nn.Identity(), None, optimizer, scaler, None, torch.device("cpu"))


def test_step_sizes_after_a_jump_of_the_gradient() -> None:
    """By hand: a settled Adam moves by the rate; after a jump of the gradients, up or down, it does not."""
    weight = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.AdamW([weight], lr=0.01, betas=(0.9, 0.999), weight_decay=0.0)
    sizes = measure_steps(student_of(optimizer))
    m, v, expected = 0.0, 0.0, []
    for step, gradient in enumerate([1e-3] * 300 + [1.0] * 300 + [1e-3] * 50, start=1):
        weight.grad = torch.full((4,), gradient)
        optimizer.step()
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        expected.append(m / (1 - 0.9**step) / ((v / (1 - 0.999**step)) ** 0.5 + 1e-8))
    assert torch.stack(sizes).numpy() == pytest.approx(np.array(expected), rel=1e-2)  # float32 weights
    assert expected[299] == pytest.approx(1, rel=1e-3)
    assert max(expected[300:330]) > 3  # too long right after the jump
    assert expected[649] < 0.02  # and nearly nothing after the jump back


def test_logits_are_measured_without_their_constants_and_in_training_only() -> None:
    """By hand: (0, 4) lies 2 around its mean and (3, 3) nothing, a constant changes neither."""
    student = student_of(torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))]))
    sizes = measure_logits(student)
    for x in (torch.tensor([[0.0, 4.0], [3.0, 3.0]]), torch.tensor([[7.0, 11.0]]) + 100):
        student.model(x)
    student.model.eval()
    student.model(torch.ones(2, 2))
    assert torch.stack(sizes).tolist() == [1.0, 2.0]
    assert float(size_of(torch.tensor([[0.0, 4.0, -torch.inf]]))) == 2.0  # labels that keep their largest logits alone
