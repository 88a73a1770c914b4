"""Image sets in the plan: presets, keys, job counts, and settings that are refused."""

from pathlib import Path

import pytest
import yaml
from PIL import Image

from conftest import ROOT, TINY_DEMO, copy_known
from hald.errors import UserError
from hald.pipeline import Plan, make_plan
from hald.plan.graph import Graph, JobId
from hald.plan.stage import Need
from hald.synthesis.spec import Lpld

PRESETS = yaml.safe_load((ROOT / "config/presets.yaml").read_text())
DATASETS = ("imagenet1k", "tiny_imagenet", "cifar100", "imagewoof", "imagenette")
ARCHES = ("resnet18", "mobilenet_v2", "shufflenet_v2", "alexnet", "densenet121")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    copy_known(tmp_path / "config")
    (tmp_path / "config/experiments/tiny.yaml").write_text(TINY_DEMO)
    return tmp_path


def planned(root: Path, images: dict[str, object], dataset: str = "digits", ipc: int = 2) -> Plan:
    """A plan with one image set, named x."""
    content = yaml.safe_load(TINY_DEMO)
    content |= {"dataset": dataset, "images": {"x": images}}
    content["teachers"] |= {name: {"arch": f"torchvision/{name}", "recipe": {"crop": "resized"}} for name in ARCHES}
    content["tables"] = {"main": content["tables"]["main"] | {"images": ["x"], "ipc": [ipc], "slc": [ipc]}}
    (root / "config/experiments/tiny.yaml").write_text(yaml.safe_dump(content))
    return make_plan({"experiments": ["tiny"]}, root)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_makes_a_plan_of_its_dataset(root: Path, name: str) -> None:
    method, _, dataset = name.partition("/")
    dataset = dataset.removesuffix("-ipc1")
    plan = planned(root, {"preset": name}, dataset, ipc=1 if name.endswith("-ipc1") else 10)
    (images,) = plan.images.values()
    assert images.method == {"sre2l++": "sre2l", "fadrm+": "fadrm"}.get(method, method)
    assert len(images.teachers) == (len(PRESETS[name].get("teachers", [1])))
    for units in plan.units.values():
        assert units.recover.sizes[-1] == plan.datasets[units.dataset].size
        assert units.batch >= min(units.classes, 100) or isinstance(units.own, Lpld)


def test_every_method_has_a_preset_for_every_dataset() -> None:
    wanted = {
        f"{method}/{dataset}"
        for method in ("sre2l", "sre2l++", "lpld", "rded", "fadrm", "fadrm+")
        for dataset in DATASETS
    }
    assert wanted <= set(PRESETS)


# Spot checks against methods.md 2.2, 2.3 and 2.5.
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("sre2l/imagenet1k", (0.25, (4000,), 0.01, (0, 32), True, 100)),
        ("sre2l/tiny_imagenet", (0.1, (4000,), 1.0, (-4, 4), True, 100)),
        ("sre2l/cifar100", (0.25, (1000,), 0.01, (0, 4), False, 100)),
        ("lpld/tiny_imagenet", (0.1, (4000,), 0.05, (-4, 4), True, 100)),
        ("fadrm/tiny_imagenet", (0.01, (500, 500), 0.01, (0, 4), True, 100)),
        ("fadrm/imagenette", (0.05, (500,) * 4, 0.01, (0, 32), True, 10)),
    ],
)
def test_published_values(root: Path, name: str, values: tuple[object, ...]) -> None:
    (units,) = planned(root, {"preset": name}, name.partition("/")[2]).units.values()
    r = units.recover
    assert (r.lr, r.budgets, r.r_bn, r.roll, r.crop, units.batch) == values


def test_a_key_beside_the_preset_wins(root: Path) -> None:
    plan = planned(root, {"preset": "fadrm/cifar100", "recover": {"lr": 0.5}}, "cifar100")
    (units,) = plan.units.values()
    assert (units.recover.lr, units.recover.r_bn, units.recover.sizes) == (0.5, 0.01, (32,) * 4)
    with pytest.raises(UserError, match="no preset 'fadrm/cifar10'.*Did you mean 'fadrm/cifar100'"):
        planned(root, {"preset": "fadrm/cifar10"}, "cifar100")


def test_units_do_not_depend_on_the_ipc_where_images_do_not(root: Path) -> None:
    ten, fifty = (planned(root, {"preset": "fadrm/cifar100"}, "cifar100", ipc) for ipc in (10, 50))
    assert set(ten.units) == set(fifty.units)
    assert set(ten.images).isdisjoint(fifty.images)
    assert [ten.needed["rank", key] for key in ten.rankings] == [100]  # classes
    assert [ten.needed["recover", key] for key in ten.units] == [10]  # chunks x images
    ten, fifty = (planned(root, {"preset": "lpld/cifar100"}, "cifar100", ipc) for ipc in (10, 50))
    assert set(ten.units).isdisjoint(fifty.units)
    assert set(ten.statistics) == set(fifty.statistics)


@pytest.mark.parametrize("names", [("many", "few"), ("few", "many")])
def test_a_dataset_has_the_images_that_its_most_demanding_set_needs(names: tuple[str, ...], root: Path) -> None:
    """RDED's mosaics at factor 2 take four crops of four images each, a real subset one."""
    sets = {"many": {"method": "rded", "factor": 2}, "few": {"method": "real"}}
    content = yaml.safe_load(TINY_DEMO)
    content["images"] = {name: sets[name] for name in names}
    content["tables"] = {"main": content["tables"]["main"] | {"images": [*names], "ipc": [3], "slc": [3]}}
    (root / "config/experiments/tiny.yaml").write_text(yaml.safe_dump(content))
    (dataset,) = make_plan({"experiments": ["tiny"]}, root).datasets.values()
    assert dataset.per_class == 12


@pytest.mark.parametrize("statistic", ["mean", "std"])
def test_teachers_that_are_fed_differently_cannot_share_images(statistic: str, root: Path) -> None:
    content = yaml.safe_load(TINY_DEMO)
    content["teachers"]["other"] = content["teachers"]["resnet10"] | {statistic: [0.4, 0.4, 0.4]}
    content["images"] = {"rded": {"method": "fadrm", "teachers": ["resnet10", "other"]}}
    content["tables"] = {"main": content["tables"]["main"]}
    (root / "config/experiments/tiny.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(UserError, match="fed with different `mean` or `std`"):
        make_plan({"experiments": ["tiny"]}, root)


def test_rded_patches_and_fadrm_share_one_ranking(root: Path) -> None:
    rankings = {key for m in ("rded", "patches", "fadrm") for key in planned(root, {"method": m}).rankings}
    rankings |= set(planned(root, {"method": "sre2l", "init": "patches"}).rankings)
    assert len(rankings) == 1


METHODS = ("sre2l", "lpld", "fadrm", "rded", "patches", "real")


@pytest.mark.parametrize(
    ("option", "methods"),
    [
        ({"alpha": 0.3}, ("fadrm",)),
        ({"bn_stats": "ema0.1"}, ("lpld",)),
        ({"stats_batch": 99}, ("lpld",)),
        ({"init": "patches"}, ("sre2l",)),
        ({"difficulty": "easy"}, ("fadrm", "patches")),
        ({"num_crop": 2}, ("fadrm", "rded", "patches")),
        ({"recover": {"lr": 0.3}}, ("sre2l", "lpld", "fadrm")),
        ({"seed": 3}, METHODS),
    ],
)
def test_an_option_moves_the_methods_that_have_it_and_others_refuse_it(
    root: Path, option: dict[str, object], methods: tuple[str, ...]
) -> None:
    (name,) = option
    for method in methods:
        assert set(planned(root, {"method": method}).images) != set(planned(root, {"method": method} | option).images)
    from_patches = {"difficulty", "num_crop"} & {name}  # what SRe2L++ has and SRe2L does not use
    for method in set(METHODS) - set(methods) - ({"sre2l"} if from_patches else set()):
        with pytest.raises(UserError, match=f"images.x: unknown key '{name}' of method '{method}' .it takes "):
            planned(root, {"method": method} | option)


def test_a_key_of_another_method_is_refused_with_what_the_method_takes(root: Path) -> None:
    message = (
        r"tiny.yaml: images.x: unknown key 'alpha' of method 'real' "
        r"\(it takes preset, teacher, bn_mode, codec, top_k, seed\)\n"
        r".*images.x: unknown key 'difficulty' of method 'real'"
    )
    with pytest.raises(UserError, match=message):
        planned(root, {"method": "real", "alpha": 0.3, "difficulty": "hard"})
    with pytest.raises(UserError, match=r"unknown key 'num_crops' of method 'rded' .*\). Did you mean 'num_crop'\?"):
        planned(root, {"method": "rded", "num_crops": 3})
    with pytest.raises(UserError, match="images.x: 'method' is missing"):
        planned(root, {"mipc": 3})
    with pytest.raises(UserError, match="images.x.recover: unknown key 'rbn'. Did you mean 'r_bn'"):
        planned(root, {"method": "fadrm", "recover": {"rbn": 1}})


def jobs_of(plan: Plan) -> int:
    """Jobs behind the image set when nothing exists."""
    graph = Graph(plan)
    (images,) = plan.images
    found: set[JobId] = set()
    waiting = [Need("synthesize", images)]
    while waiting:
        jobs = {graph.maker(file) for file in graph.outputs(waiting.pop())}
        waiting += [need for job in jobs - found for needs in graph.needs(*job[:2]).values() for need in needs]
        found |= jobs
    return len(found)


@pytest.mark.parametrize("method", ["sre2l", "sre2l++", "lpld", "rded", "fadrm", "fadrm+"])
def test_imagenet_at_ipc_50_is_hundreds_of_jobs_at_most(root: Path, method: str) -> None:
    count = jobs_of(planned(root, {"preset": f"{method}/imagenet1k"}, "imagenet1k", 50))
    assert 50 <= count <= 300


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ({"method": "fadrm", "recover": {"sizes": [24, 32], "budgets": [5]}}, "has 2 sizes and 1 budgets"),
        (
            {"method": "fadrm", "recover": {"sizes": [32, 24], "budgets": [5, 5]}},
            "ends with images of 24 pixels, the dataset has 32",
        ),
        ({"method": "fadrm", "recover": {"sizes": [0, 32], "budgets": [5, 5]}}, "0 is less than the minimum of 1"),
        ({"method": "fadrm", "recover": {"budgets": [5, 0]}}, "0 is less than the minimum of 1"),
        ({"method": "sre2l", "recover": {"budgets": [5, 5]}}, "has 2 budgets, but sre2l has one stage"),
        ({"method": "lpld", "teachers": ["resnet10", "resnet18"]}, "has 2 teachers, but lpld uses one"),
        ({"method": "fadrm", "mipc": 1}, "looks at mipc = 1 images per class, but IPC 2"),
        ({"method": "sre2l", "recover": {"roll": [4, 0]}}, "has recover.roll .4, 0.; write the smaller value first"),
        ({"method": "external"}, "images.x: 'path' is missing"),
        ({"method": "real", "path": "/x"}, "images.x: unknown key 'path' of method 'real'"),
        ({"method": "rded", "factor": 40, "mipc": 9999}, "has factor 40, more than the 32 pixels"),
        ({"method": "sre21"}, "'sre21' is not one of"),
    ],
)
def test_settings_that_do_not_fit_are_refused(root: Path, images: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        planned(root, images)


def test_teachers_of_one_set_are_fed_alike(root: Path) -> None:
    content = yaml.safe_load(TINY_DEMO)
    content["teachers"]["other"] = content["teachers"]["resnet10"] | {"mean": [0.1, 0.1, 0.1]}
    content["images"]["rded"] = {"method": "fadrm", "teachers": ["resnet10", "other"]}
    (root / "config/experiments/tiny.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(UserError, match="different `mean` or `std`"):
        make_plan({"experiments": ["tiny"]}, root)


def test_real_images_that_a_class_must_have(root: Path) -> None:
    for images, needed in (({"method": "fadrm", "factor": 2}, 8), ({"method": "real"}, 2), ({"method": "sre2l"}, 0)):
        (dataset,) = planned(root, images).datasets.values()
        assert dataset.per_class == needed


def test_the_content_of_a_foreign_folder_is_part_of_the_key(root: Path) -> None:
    (root / "out/0").mkdir(parents=True)
    Image.new("RGB", (32, 32)).save(root / "out/0/a.png")
    images = {"method": "external", "path": str(root / "out"), "bn_mode": "batch"}
    before = set(planned(root, images).images)
    assert set(planned(root, images).images) == before
    Image.new("RGB", (32, 32), "red").save(root / "out/0/a.png")
    assert set(planned(root, images).images) != before


def test_a_set_made_elsewhere_says_which_statistics_label_it(root: Path) -> None:
    with pytest.raises(UserError, match="image set 'x' was made elsewhere.* `bn_mode: batch`"):
        planned(root, {"method": "external", "path": str(root / "out")})


def test_labels_of_optimised_images_use_batch_statistics(root: Path) -> None:
    modes = {
        m: next(iter(planned(root, {"method": m}).labels.values())).bn_mode
        for m in ("sre2l", "lpld", "fadrm", "rded", "patches", "real")
    }
    assert modes == {
        "sre2l": "batch",
        "lpld": "batch",
        "fadrm": "batch",
        "rded": "running",
        "patches": "running",
        "real": "running",
    }
