"""The plan alone: config -> specs, keys, stages, pools; no torch, no Snakemake."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT, TINY_DEMO, copy_known
from hald.config.paper import PLACE, read_paper
from hald.config.published import Published, Setting, read_published
from hald.config.read import experiment_names, load_config, read_yaml
from hald.errors import UserError
from hald.evaluation.protocol import Where, phases_of, protocol
from hald.evaluation.settings import Adaptive, Alternating, Evaluation
from hald.evaluation.spec import AdaptiveSpec, LossSpec, Phase
from hald.files import write_json
from hald.labels.spec import LabelsSpec
from hald.pipeline import FROZEN, Plan, frozen_plan, make_plan
from hald.plan.arithmetic import pool_size, second_moment
from hald.plan.blocks import Block, cut
from hald.plan.graph import Graph, JobId
from hald.progress.summary import report, table_costs
from hald.report.spec import Printed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with the project's datasets and one small experiment."""
    copy_known(tmp_path / "config")
    (tmp_path / "config/experiments/tiny.yaml").write_text(TINY_DEMO)
    return tmp_path


def tiny(root: Path, **override: object) -> Plan:
    raw = {"experiments": ["tiny"], "override": {"tiny": override}}
    return make_plan(raw, root)


def changed(a: Plan, b: Plan) -> set[str]:
    """Which kinds of things have other keys."""
    kinds = ("datasets", "teachers", "images", "labels", "runs")
    return {kind for kind in kinds if set(getattr(a, kind)) != set(getattr(b, kind))}


def test_neither_torch_nor_snakemake_is_imported() -> None:
    found = "sorted({'torch', 'snakemake', 'zarr'} & set(sys.modules))"
    code = f"import sys, hald.pipeline; hald.pipeline.make_plan(); print({found})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=True)
    assert done.stdout.strip() == "[]"


def test_same_work_is_planned_once(root: Path) -> None:
    plan = tiny(root)
    twice = yaml.safe_load(TINY_DEMO)["tables"]["main"] | {"caption": "again", "seeds": 3}
    both = tiny(root, tables={"again": twice})
    assert set(both.runs) == set(plan.runs)
    assert max(both.needed["evaluate", run] for run in both.runs) == 3
    assert len(plan.runs) == 3
    assert "4   of 11 training runs" in report(both)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ({"evaluations": {"hald": {"lr": 0.002}}}, {"runs"}),
        ({"evaluations": {"hald": {"smoothing": 0.5}}}, {"runs"}),
        ({"students": {"resnet10": {"arch": "small/resnet10-w8"}}}, {"runs"}),
        ({"labels": {"seed": 1}}, {"labels", "runs"}),
        ({"images": {"real": {"seed": 3}}}, {"images", "labels", "runs"}),
        ({"images": {"rded": {"num_crop": 3}}}, {"images", "labels", "runs"}),
        ({"images": {"rded": {"bn_mode": "batch"}}}, {"labels", "runs"}),
        ({"teachers": {"resnet10": {"recipe": {"lr": 0.02}}}}, {"teachers", "images", "labels", "runs"}),
        ({"tables": {"main": {"caption": "other words"}}}, set()),
        ({"tables": {"main": {"seeds": 5}}}, set()),
    ],
)
def test_a_change_moves_the_keys_below_it_and_no_others(
    root: Path, override: dict[str, object], expected: set[str]
) -> None:
    assert changed(tiny(root), tiny(root, **override)) == expected


def test_names_and_places_are_not_part_of_keys(root: Path) -> None:
    plan = tiny(root)
    renamed = TINY_DEMO.replace("hald:", "shs:").replace("hald]", "shs]")
    (root / "config/experiments/tiny.yaml").write_text(renamed)
    elsewhere = make_plan({"experiments": ["tiny"], "results": "/r", "stores": "/s"}, root)
    assert changed(plan, elsewhere) == set()
    assert plan.slugs == elsewhere.slugs


def test_paths_are_a_readable_name_and_the_key(root: Path) -> None:
    plan = tiny(root)
    key = next(iter(plan.labels))
    assert str(plan.folder("relabel", key)) == f"results/labels/digits/rded-ipc2-resnet10-w4_{key}.zarr"
    assert plan.key("relabel", plan.slugs[key]) == key


def test_a_frozen_plan_comes_back_whole(root: Path) -> None:
    plan = tiny(root, evaluations={"hald": {"hard_epochs": {4: 1, 100: 2}}})
    plan = Plan(**{**plan.__dict__, "results": str(root / "results")})
    plan.freeze(root / "plan.json")
    assert Plan.thaw(root / "plan.json") == plan


def test_jobs_read_the_plan_of_their_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The main process always plans and freezes; a job reads what was frozen, or plans where that does not reach it."""
    monkeypatch.chdir(root)
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("HALD_PLAN", str(root / "old.json"))
    Plan(**{**tiny(root).__dict__, "results": "old"}).freeze(root / "old.json")
    raw = {"experiments": ["tiny"]}
    plan = frozen_plan(raw, is_main=True)
    assert plan == tiny(root)
    (frozen,) = (root / FROZEN).iterdir()
    assert os.environ["HALD_PLAN"] == f"{FROZEN}/{frozen.name}"
    assert Plan.thaw(frozen) == plan
    assert os.environ["PYTHONPATH"] == f"{ROOT}/src:/elsewhere"
    other = raw | {"override": {"tiny": {"epochs": 9}}}
    assert frozen_plan(other, is_main=False) == plan
    assert len(list((root / FROZEN).iterdir())) == 1
    for lost in (None, f"{FROZEN}/removed.json"):
        monkeypatch.delenv("HALD_PLAN") if lost is None else monkeypatch.setenv("HALD_PLAN", lost)
        assert frozen_plan(other, is_main=False) == tiny(root, epochs=9)
    frozen.write_text("cut off")
    assert Plan.thaw(frozen_file(frozen_plan(raw, is_main=True))) == plan  # made anew by the main process


def frozen_file(_: Plan) -> Path:
    return Path(os.environ["HALD_PLAN"])


def test_a_table_is_current_while_it_means_the_same_and_has_its_records(root: Path) -> None:
    plan = Plan(**{**tiny(root).__dict__, "results": str(root / "results")})
    table = JobId("table", "main")
    for key in plan.runs:
        for seed in range(plan.needed["evaluate", key]):
            write_json(plan.file("evaluate", key, seed), {})
    for file in plan.files("table", "main"):
        write_json(Path(file), {})
    assert not Graph(plan).is_done(table)
    write_json(plan.file("table", "main"), plan.meaning("table", "main"))
    assert Graph(plan).is_done(table)
    plan.table_file("main", "tex").unlink()
    assert not Graph(plan).is_done(table)
    write_json(plan.table_file("main", "tex"), {})
    other = Plan(**{**tiny(root, tables={"main": {"caption": "new"}}).__dict__, "results": str(root / "results")})
    assert not Graph(other).is_done(table)
    plan.file("evaluate", plan.tables["main"].cells[0].run, 1).unlink()
    assert not Graph(plan).is_done(table)
    with pytest.raises(UserError, match="no table 'mian' in this plan. Did you mean 'main'"):
        plan.key("table", "mian")


# Phase lengths of the paper's settings, worked out by hand.
@pytest.mark.parametrize(
    ("order", "epochs", "hard", "expected"),
    [
        ("soft-hard-soft", 300, 75, [("soft", 112), ("hard", 75), ("soft", 113)]),
        ("soft-hard-soft", 300, 150, [("soft", 75), ("hard", 150), ("soft", 75)]),
        ("soft-hard-soft", 300, 50, [("soft", 125), ("hard", 50), ("soft", 125)]),
        ("soft", 300, 0, [("soft", 300)]),
        ("hard", 300, 300, [("hard", 300)]),
        ("hard-soft", 300, 150, [("hard", 150), ("soft", 150)]),
        ("soft-hard", 300, 150, [("soft", 150), ("hard", 150)]),
        ("hard-soft-hard", 300, 151, [("hard", 75), ("soft", 149), ("hard", 76)]),
    ],
)
def test_stages(order: str, epochs: int, hard: int, expected: list[tuple[str, int]]) -> None:
    stages = phases_of(Evaluation(order=order), epochs, hard)
    assert stages == tuple(Phase(*entry) for entry in expected)


def run_fields(evaluation: Evaluation, slc: int = 100, published: Published | None = None) -> dict[str, Any]:
    where = Where("imagenet1k", "torchvision/resnet18", 10, slc, slc / 10)
    return protocol(evaluation, 300, where, published or Published())


@pytest.mark.parametrize(
    ("beta2", "steps", "expected"),
    [
        (0.99, 700, 0.99),
        ("scaled", 37_500, 0.999),
        ("scaled", 187_500, 0.999),  # never longer than published
        ("scaled", 3750, 0.99),  # a tenth of the steps, a tenth of the memory
        ("scaled", 700, 0.94643),
        ("scaled", 10, 0.9),  # never shorter than the first moment's
    ],
)
def test_memory_of_the_second_moment(beta2: float | str, steps: int, expected: float) -> None:
    assert second_moment(beta2, steps) == pytest.approx(expected, abs=1e-5)


def test_an_evaluation_has_the_beta2_of_its_experiment_or_its_own(root: Path) -> None:
    own = {"soft_only": {"beta2": 0.5}, "hald": {}}
    plan = tiny(root, beta2="scaled", evaluations=own)
    assert {(len(run.stages), run.beta2) for run in plan.runs.values()} == {(1, 0.5), (3, 0.9)}


@pytest.mark.parametrize(
    ("slc", "stages"),
    [
        (10, [("soft", 15), ("hard", 270), ("soft", 15)]),  # one label per image: 30 soft epochs of 300
        (50, [("soft", 75), ("hard", 150), ("soft", 75)]),  # the paper's own lengths for ImageNet-1K at SLC 50
        (15, [("soft", 22), ("hard", 255), ("soft", 23)]),
        (100, [("soft", 300)]),
        (500, [("soft", 300)]),
    ],
)
def test_soft_epochs_follow_from_the_labels(slc: int, stages: list[tuple[str, int]]) -> None:
    found = run_fields(Evaluation(order="soft-hard-soft", label_uses=30), slc)
    assert found["stages"] == tuple(Phase(*stage) for stage in stages)
    assert found["smoothing"] == (0.8 if len(stages) > 1 else 0.0)


def test_few_label_uses_leave_an_epoch_for_every_soft_stage() -> None:
    found = run_fields(Evaluation(order="soft-hard-soft", label_uses=1), 10)
    assert found["stages"] == (Phase("soft", 1), Phase("hard", 298), Phase("soft", 1))


def test_label_uses_goes_with_a_mixed_order_alone() -> None:
    for wrong in (Evaluation(order="soft", label_uses=3), Evaluation(order="hard-soft", label_uses=3, hard_epochs=9)):
        with pytest.raises(UserError, match="label_uses decides"):
            run_fields(wrong)


def test_explicit_first_and_last_lengths() -> None:
    """The paper's phase-split table: 150 hard epochs between (50, 100), (100, 50) and (75, 75) soft ones."""
    for first, last in ((50, 100), (100, 50), (75, 75)):
        split = Evaluation(order="soft-hard-soft", epochs=300, hard_epochs=150, first_epochs=first, last_epochs=last)
        assert [stage.epochs for stage in run_fields(split)["stages"]] == [first, 150, last]
    one = Evaluation(order="soft-hard-soft", epochs=300, hard_epochs=150, last_epochs=40)
    assert [stage.epochs for stage in run_fields(one)["stages"]] == [110, 150, 40]


@pytest.mark.parametrize(("order", "hard"), [("soft", 3), ("hard", 5), ("soft-hard-soft", 10), ("hard-soft", 0)])
def test_stages_without_epochs_are_refused(order: str, hard: int) -> None:
    with pytest.raises(UserError, match=f"order '{order}' does not go with 10 epochs of which {hard} are hard"):
        phases_of(Evaluation(order=order), 10, hard)


def test_alternating_stages() -> None:
    """Released schedule S4: every n epochs, starting soft; the last stretch is cut short."""
    stages = phases_of(Evaluation(order=Alternating(every=4)), 10, 0)
    assert stages == (Phase("soft", 4), Phase("hard", 4), Phase("soft", 2))
    assert phases_of(Evaluation(order=Alternating(every=9, first="hard")), 10, 0)[0] == Phase("hard", 9)


def test_hard_epochs_may_depend_on_the_slc() -> None:
    evaluation = Evaluation(order="soft-hard-soft", epochs=300, hard_epochs={50: 150, 250: 75})
    hard = {slc: run_fields(evaluation, slc)["stages"][1].epochs for slc in (10, 50, 200, 250, 500)}
    assert hard == {10: 150, 50: 150, 200: 150, 250: 75, 500: 75}


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        (Evaluation(epochs=10, hard_epochs=5), "10 epochs of which 5 are hard"),
        (Evaluation(order="soft-hard", epochs=10, hard_epochs=11), "of which 11 are hard"),
        (Evaluation(order="soft-hard-soft", epochs=10, hard_epochs=0), "of which 0 are hard"),
        (Evaluation(order="hard", epochs=10, hard_epochs=3), "of which 3 are hard"),
        (Evaluation(order="soft-hard-soft", epochs=3, hard_epochs=2), "do not add up: first 0 and last 1"),
        (
            Evaluation(order="soft-hard-soft", epochs=300, hard_epochs=150, first_epochs=50, last_epochs=50),
            "first 50 and last 50 epochs must share the 150 soft",
        ),
        (Evaluation(order="soft-hard", epochs=300, hard_epochs=150, first_epochs=50), "leave first_epochs"),
        (Evaluation(order="alternating", epochs=300, hard_epochs=150), "leave hard_epochs empty"),
        (
            Evaluation(order="alternating", epochs=300, last_epochs=9),
            "follows from `order: alternating`: leave last_epochs empty",
        ),
        (
            Evaluation(order="adaptive", epochs=300, hard_epochs=150, first_epochs=9),
            "follows from `order: adaptive`: leave hard_epochs and first_epochs empty",
        ),
        (Evaluation(order="adaptive", epochs=50), "three stages of at least 20"),
        (Evaluation(order=Adaptive(held_out=10), epochs=300), "leaves nothing to train on at IPC 10"),
    ],
)
def test_stage_lengths_that_do_not_add_up_are_refused(evaluation: Evaluation, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run_fields(evaluation)


KNOWN = Published(
    {
        "paper": {
            "d": {
                "rates": {"net": {"10": [0.3, 1], "50": [0.4, 2]}, "shufflenet_v2": {"10": [0.9, 4]}},
                "hard_epochs": {"100": 30, "200": 60},
            }
        },
        "code": {"d": {"rates": {"net": {"10": [0.7, 5], "20": [0.5, 3]}}}, "e": {"rates": {"vit": {"1": [0.6, 6]}}}},
        "recommended": {"d": {"hard_epochs": {"100": 99, "50": 12}}},
    }
)


@pytest.mark.parametrize(
    ("arch", "ipc", "lr", "eta", "origin"),
    [
        ("small/net", 10, 0.3, 1.0, "paper"),
        ("small/net", 20, 0.5, 3.0, "code"),
        ("small/net", 15, 0.3, 1.0, "recommended"),  # of the lower IPC, as the paper has it
        ("small/net", 30, 0.5, 3.0, "recommended"),
        ("small/net", 50, 0.4, 2.0, "paper"),
        ("small/net", 99, 0.4, 2.0, "recommended"),
        ("small/net", 5, 0.001, 2.0, "recommended"),
        ("torchvision/shufflenet_v2_x1_0", 10, 0.9, 4.0, "paper"),
        ("timm/vit_tiny", 10, 0.0005, 2.0, "recommended"),
        ("small/other", 10, 0.001, 2.0, "recommended"),
    ],
)
def test_rates_of_published_networks(arch: str, ipc: int, lr: float, eta: float, origin: str) -> None:
    assert KNOWN.rate("lr", "d", arch, ipc) == Setting(lr, origin)
    assert KNOWN.rate("eta", "d", arch, ipc) == Setting(eta, origin)


@pytest.mark.parametrize(
    ("slc", "epochs", "expected"),
    [
        (100, 300, Setting(30, "paper")),
        (200, 300, Setting(60, "paper")),
        (100, 150, Setting(15, "recommended")),  # scaled to another length
        (150, 300, Setting(30, "recommended")),  # the lower SLC's
        (500, 300, Setting(60, "recommended")),
        (60, 300, Setting(12, "recommended")),
        (20, 300, Setting(12, "recommended")),  # below all that is known: the smallest's
    ],
)
def test_published_hard_epochs(slc: int, epochs: int, expected: Setting) -> None:
    assert KNOWN.hard_epochs("d", slc, epochs) == expected
    assert KNOWN.hard_epochs("unknown", slc, epochs) == Setting(epochs // 2, "recommended")


def test_what_is_published_is_listed() -> None:
    assert KNOWN.datasets == ["d", "e"]
    assert KNOWN.networks == ["net", "shufflenet_v2", "vit"]


def test_published_settings_come_first_and_are_named() -> None:
    published = read_published(ROOT)
    hald = Evaluation(order="soft-hard-soft")
    # the paper's tables of rates and hard epochs, typed by hand
    for slc, hard in ((50, 150), (200, 150), (250, 75), (300, 75)):
        fields = run_fields(hald, slc, published)
        assert fields["stages"][1].epochs == hard
        assert fields["origin"] == {"lr": "paper", "eta": "paper", "hard_epochs": "paper"}
    assert [stage.epochs for stage in run_fields(hald, 300, published)["stages"]] == [112, 75, 113]
    assert run_fields(hald, 500, published)["origin"]["hard_epochs"] == "recommended"
    assert published.rate("eta", "imagenet1k", "torchvision/resnet18", 50) == Setting(1, "paper")
    assert published.rate("eta", "tiny_imagenet", "small/shufflenet_v2_x0_5", 40) == Setting(1, "paper")
    # a key tells 2 from 2.0: the same rate must not be trained twice because one of the two was published
    assert isinstance(published.rate("eta", "cifar100", "small/resnet18", 10).value, float)
    assert isinstance(published.rate("eta", "cifar100", "small/resnet18", 20).value, float)
    assert published.rate("lr", "imagewoof", "torchvision/resnet50", 10) == Setting(0.005, "code")
    assert published.rate("lr", "cifar100", "small/resnet18", 20) == Setting(0.001, "recommended")
    assert published.rate("lr", "cifar100", "timm/vit_tiny_patch16_224", 10) == Setting(0.0005, "recommended")
    assert published.hard_epochs("cifar100", 20, 300) == Setting(150, "recommended")
    assert published.hard_epochs("tiny_imagenet", 20, 300) == Setting(50, "recommended")
    assert published.hard_epochs("digits", 20, 100) == Setting(50, "recommended")


def test_an_own_value_is_the_experiments() -> None:
    published = read_published(ROOT)
    fields = run_fields(Evaluation(order="soft-hard-soft", hard_epochs=100, lr=0.002, eta=2), 100, published)
    assert fields["origin"] == {"lr": "experiment", "eta": "paper", "hard_epochs": "experiment"}
    assert (fields["lr"], fields["eta"]) == (0.002, 2)


def test_what_a_training_does_not_use_is_not_in_its_key() -> None:
    plain, other = (
        run_fields(Evaluation(order="soft", smoothing=s, handover=h)) for s, h in ((0.8, "carry"), (0, "reset"))
    )
    assert plain == other
    assert run_fields(Evaluation(order="soft", hard_temperature="matched")) == plain


def _kl(name: str = "kl", squared: bool = False, **more: object) -> dict[str, Any]:
    return {"loss": LossSpec(name, {"temperature": 20.0, "squared": squared} | more)}


def _joint(weight: float, squared: bool = False) -> dict[str, Any]:
    return _kl("joint", squared, weight=weight, smoothing=0.8)


def _mixed(*stages: tuple[str, int | None], **more: Any) -> dict[str, Any]:
    return {"stages": tuple(Phase(*stage) for stage in stages), "smoothing": 0.8} | more


SHS = (("soft", 75), ("hard", 150), ("soft", 75))  # the paper's lengths for ImageNet-1K at SLC 100
ADAPTIVE = (("soft", None), ("hard", None), ("soft", None))
# What the standard evaluations compute otherwise than `soft_only`, 300 epochs with ResNet-18 at IPC 10.
STANDARD: dict[str, dict[str, Any]] = {
    "soft_only": {},
    "hard_only": _mixed(("hard", 300)),
    "hald": _mixed(*SHS),
    "hald_matched": _mixed(*SHS, **_kl(squared=True)),
    "hald_aligned": _mixed(*SHS, **_kl(squared=True), hard_temperature=None),
    "hald_reset": _mixed(*SHS, handover="reset"),
    "hald_adaptive": _mixed(*ADAPTIVE, adaptive=AdaptiveSpec(10, 0.05, 0.005, 20, 1)),
    "hald_divergence": _mixed(*ADAPTIVE, adaptive=AdaptiveSpec(10, 0.05, 0.005, 20, 1, 0.02)),
    "hald_reuse": {},  # ten labels of every image, each for 30 epochs: soft alone
    "hard_soft": _mixed(("hard", 150), ("soft", 150)),
    "soft_hard": _mixed(("soft", 150), ("hard", 150)),
    "hard_soft_hard": _mixed(("hard", 75), ("soft", 150), ("hard", 75)),
    "alternating": _mixed(*[("soft", 1), ("hard", 1)] * 150),
    "gift": {"loss": LossSpec("gift", {"weight": 0.1, "mixed": False})},
    "joint_1": _joint(1.0),
    "joint_0.1": _joint(0.1),
    "joint_0.01": _joint(0.01),
    "joint_0.001": _joint(0.001),
    "joint_1_matched": _joint(1.0, squared=True),
    "joint_0.1_matched": _joint(0.1, squared=True),
    "joint_0.01_matched": _joint(0.01, squared=True),
    "lpld": {"sampling": "replacement", "eta": 1.0},
    "lpqld": {"sampling": "epoch", "eta": 1.0, "top_k": 100}
    | {"loss": LossSpec("lpqld", {"start": 20.0, "factor": 0.7, "every": 30, "floor": 2.0})},
}


@pytest.mark.parametrize("name", sorted(read_yaml(ROOT / "config/evaluations.yaml")))
def test_standard_evaluations(name: str) -> None:
    known, published = read_yaml(ROOT / "config/evaluations.yaml"), read_published(ROOT)
    plain, found = (run_fields(Evaluation(**known[e]), 100, published) for e in ("soft_only", name))
    assert {field: value for field, value in found.items() if value != plain[field] and field != "origin"} == STANDARD[
        name
    ]


def test_the_standard_training_of_a_student() -> None:
    """The released defaults; rate and eta are the paper's for ResNet-18 at IPC 10."""
    fields = run_fields(Evaluation(order="soft"), 100, read_published(ROOT))
    assert fields["stages"] == (Phase("soft", 300),)
    assert (fields["lr"], fields["eta"], fields["weight_decay"], fields["smoothing"]) == (0.001, 2.0, 0.01, 0.0)
    assert fields["loss"] == LossSpec("kl", {"temperature": 20.0, "squared": False})
    assert (fields["handover"], fields["sampling"], fields["top_k"]) == ("carry", "permutation", None)


def labels(classes: int, ipc: int, batch: int = 16) -> LabelsSpec:
    from conftest import labels_spec

    return labels_spec(classes=classes, count=classes * ipc, batch=batch)


# IPC 20 and SLC 50 on 1000 classes: two views of 1250 batches, and half a view (625) more, or floored to 40.
@pytest.mark.parametrize(
    ("slc", "rounding", "pool"), [(50, "batches", 3125), (50, "floor", 2500), (40, "batches", 2500)]
)
def test_pool_of_a_fractional_slc(slc: int, rounding: str, pool: int) -> None:
    assert pool_size(labels(1000, 20), 20, slc, rounding) == pool


def test_an_slc_below_the_ipc_takes_a_part_of_one_view_or_is_refused() -> None:
    assert pool_size(labels(10, 10), 10, 5, "batches") == 3  # 50 labels hold three whole batches of 16
    with pytest.raises(UserError, match="slc_rounding: batches"):
        pool_size(labels(10, 10), 10, 5, "floor")


@given(st.integers(0, 40), st.integers(1, 12), st.integers(1, 12), st.integers(0, 40), st.sets(st.integers(0, 50)))
def test_blocks_cover_each_unit_once_and_finished_ones_stay(
    before: int, size: int, other: int, needed: int, lost: set[int]
) -> None:
    """A run at one size finishes; then units are lost, more or fewer are needed, and the size is another."""
    receipts = [block.name for block in cut(before, size, [], lambda unit: False)]
    blocks = cut(needed, other, receipts, lambda unit: unit not in lost)
    covered = [unit for block in blocks for unit in block.units]
    assert covered == list(range(max(needed, len(covered))))
    for name in receipts:
        block = Block.named(name)
        if block.first < needed:
            assert (block in blocks) == lost.isdisjoint(block.units)
    for block in blocks:
        assert Block.named(block.name) == block
        assert block.name in receipts or len(block.units) <= other
        assert block.name not in receipts or lost.isdisjoint(block.units)
    done = {block.name for block in blocks} | set(receipts)
    again = cut(needed, size, done, lambda unit: True)  # of receipts that overlap now, one counts
    assert [unit for block in again for unit in block.units][:needed] == list(range(needed))
    assert all(block.name in done or block.name not in receipts for block in again)


def test_receipts_that_overlap_or_are_nothing_of_ours() -> None:
    """As after a receipt whose units were lost and made again in blocks of another size."""
    receipts = ["00000-00004", "00000-00001+1", "00002-00004+1", "notes", "00005-0000"]
    kept = cut(8, 3, receipts, lambda unit: True)
    assert [block.name for block in kept] == ["00000-00001+1", "00002-00004+1", "00005-00007"]


@given(
    st.builds(
        Evaluation, epochs=st.integers(1, 999), hard_epochs=st.dictionaries(st.integers(1, 99), st.integers(0, 9))
    )
)
def test_settings_survive_json(evaluation: Evaluation) -> None:
    assert Evaluation.model_validate_json(evaluation.model_dump_json()) == evaluation


def refuse(root: Path, match: str, **override: object) -> None:
    with pytest.raises(UserError, match=match):
        tiny(root, **override)


def test_bad_config_gets_one_clear_message(root: Path) -> None:
    refuse(root, "unknown key 'epoch'. Did you mean 'epochs'", evaluations={"hald": {"epoch": 3}})
    refuse(root, "ipc.0: 0 is less than the minimum of 1", tables={"main": {"ipc": [0]}})
    refuse(root, "slc.0: 0 is less than the minimum of 1", tables={"main": {"slc": [0]}})
    refuse(root, "no evaluation 'halt'. Did you mean 'hald'", tables={"main": {"evaluations": ["halt"]}})
    refuse(root, "no dataset 'digit'. Did you mean 'digits'", dataset="digit")
    refuse(root, "neither in rows nor in columns", tables={"main": {"ipc": [1, 2]}})
    refuse(root, "lr: 'fast'", evaluations={"hald": {"lr": "fast"}})
    refuse(root, "hard_epochs.*-1 is less than the minimum of 0", evaluations={"hald": {"hard_epochs": -1}})
    refuse(root, "looks at mipc = 1 images per class, but IPC 2", images={"rded": {"mipc": 1}})
    refuse(root, "unknown network 'resnet18'", students={"resnet10": {"arch": "resnet18"}})
    refuse(root, "takes torchvision", teachers={"resnet10": {"source": "torchvision"}})
    refuse(root, "source train and path", teachers={"resnet10": {"path": "/x"}})
    with pytest.raises(UserError, match="no experiment 'tinny'.*Did you mean 'tiny'"):
        make_plan({"experiments": ["tinny"]}, root)
    with pytest.raises(UserError, match="override names 'demo'"):
        make_plan({"experiments": ["tiny"], "override": {"demo": {}}}, root)


def test_a_loss_and_an_order_have_keys_of_their_own(root: Path) -> None:
    def hald(message: str, **settings: object) -> None:
        refuse(root, f"tiny.yaml: evaluations.hald{message}", evaluations={"hald": settings})

    hald(r".loss: unknown key 'weight' of loss 'kl' \(it takes none\)", loss={"name": "kl", "weight": 0.2})
    hald(r".loss: unknown key 'label' of loss 'joint' \(it takes weight\)", loss={"name": "joint", "label": "own"})
    hald(r".loss: unknown key 'wight' .*Did you mean 'weight'", loss={"name": "gift", "wight": 1})
    hald(r".loss.label: 'both' is not one of 'own' or 'mixed' \(The hard label", loss={"name": "gift", "label": "both"})
    hald(r".loss.weight: -1 is less than the minimum of 0", loss={"name": "gift", "weight": -1})
    hald(r".loss: 'gif' is not one of \['kl', .*Did you mean 'gift'", loss="gif")
    hald(r".loss: 3 is not of type 'object'", loss=3)
    hald(r".order: 'soft-soft' is not one of .*Did you mean 'soft-hard-soft'", order="soft-soft")
    hald(r".order: unknown key 'every' of order 'soft-hard-soft' \(it takes none\)", order={"every": 2})
    hald(r".order: unknown key 'first' of order 'adaptive' \(it takes window", order={"name": "adaptive", "first": 2})


def test_keys_of_losses_and_orders_that_were_flat_are_refused_with_what_they_are_now(root: Path) -> None:
    for key, value, form in (
        ("joint_weight", 0.3, "loss: {name: joint, weight: ...}"),
        ("gift_weight", 0.3, "loss: {name: gift, weight: ...}"),
        ("gift_label", "own", "loss: {name: gift, label: ...}"),
        ("anneal", {"every": 3}, "loss: {name: lpqld, factor: ..., every: ..., floor: ...}"),
        ("alternate", 3, "order: {name: alternating, every: ...}"),
        ("alternate_first", "hard", "order: {name: alternating, first: ...}"),
        ("adaptive", {"window": 3}, "order: {name: adaptive, window: ..., accuracy: ...}"),
    ):
        message = f"evaluations.hald: unknown key '{key}': write `{form}` (found {value!r})"
        refuse(root, re.escape(message), evaluations={"hald": {key: value}})


def test_a_bare_name_means_the_defaults_of_a_loss_or_order(root: Path) -> None:
    """A mapping without a name changes the loss that is there; another name, or a bare one, replaces it."""

    def losses(**changes: object) -> set[tuple[str, float]]:
        plan = tiny(root, evaluations={"hald": changes})
        return {(run.loss.name, run.loss.options["weight"]) for run in plan.runs.values() if run.loss.name != "kl"}

    assert losses(loss="gift") == {("gift", 0.1)}
    assert losses(loss={"name": "gift", "weight": "0.4"}) == {("gift", 0.4)}  # as --config hands it over
    standard = root / "config/evaluations.yaml"
    standard.write_text(f"{standard.read_text()}\nhald: {{loss: {{name: joint, weight: 0.7}}}}\n")
    assert losses() == {("joint", 0.7)}
    assert losses(loss={"weight": 0.5}) == {("joint", 0.5)}
    assert losses(loss="joint") == {("joint", 1.0)}
    assert losses(loss={"name": "gift"}) == {("gift", 0.1)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threads": None}, "threads: None is not of type 'integer'"),
        ({"epochs": 1.5}, "epochs: 1.5 is not of type 'integer'"),
        ({"epochs": True}, "epochs: True is not of type 'integer'"),
        ({"labels": "u8"}, "labels: 'u8' is not of type 'object'"),
        ({"labels": {"mix": "cut"}}, "labels.mix: 'cut' is not one of 'cutmix', 'mixup' or 'none'.*Mixing inside"),
        ({"labels": {"mix_alpha": 0}}, "labels.mix_alpha: 0 is less than or equal to the minimum of 0"),
        ({"labels": {"weights": [float("nan")]}}, "labels.weights.0: found nan, which is not a finite number"),
        (
            {"evaluations": {"hald": {"hard_epochs": {"10": "x"}}}},
            r"evaluations.hald.hard_epochs.10: 'x' is not of type 'integer'$",
        ),
        ({"labels": {"mix": "cutmx"}}, "or 'none'. Did you mean 'cutmix'"),
        ({"beta2": 1}, "beta2: 1 is greater than or equal to the maximum of 1"),
        ({"beta2": "often"}, "beta2: 'often' is not of type 'number'; 'often' is not one of 'scaled'"),
        ({"evaluations": {"hald": {"hard_epochs": {"ten": 1}}}}, "found the key 'ten', expected a whole number"),
        ({"evaluations": {"hald": {"hard_epochs": {"10": -1}}}}, "hard_epochs.10: -1 is less than the minimum of 0"),
        ({"teachers": {"resnet10": {"mean": [0.5]}}}, r"teachers.resnet10.mean: \[0.5\] is too short"),
        ({"teachers": {"resnet10": {"mean": [0.5] * 4}}}, "teachers.resnet10.mean: .* is too long"),
        ({"teachers": {"resnet10": {"recipe": {"lr": 0}}}}, "recipe.lr: 0 is less than or equal to the minimum of 0"),
        ({"teachers": {"other": {}}}, "teachers.other: 'arch' is missing"),
        ({"tables": {"main": {"ipc": []}}}, r"tables.main.ipc: \[\] is too short"),
        ({"tables": {"main": {"ipc": [1, 1]}}}, r"tables.main.ipc: \[1, 1\]:? has non-unique elements"),
        ({"tables": {"main": {"grids": [{"ip": [1]}]}}}, "tables.main.grids.0: unknown key 'ip'. Did you mean 'ipc'"),
        ({"student": {}}, "top level: unknown key 'student'. Did you mean 'students'"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(root: Path, change: dict[str, object], message: str) -> None:
    refuse(root, message, **change)


def test_rded_and_real_images_are_labelled_with_running_statistics_unless_told(root: Path) -> None:
    assert {spec.bn_mode for spec in tiny(root).labels.values()} == {"running"}
    told = tiny(root, images={"rded": {"bn_mode": "batch"}})
    modes = {told.images[spec.images].method: spec.bn_mode for spec in told.labels.values()}
    assert modes == {"rded": "batch", "real": "running"}


def test_an_image_set_may_have_a_codec_of_its_own_for_the_same_images(root: Path) -> None:
    more = {"coarse": {"method": "rded", "mipc": 600, "num_crop": 2, "codec": "u4"}}
    more |= {"few": {"method": "rded", "mipc": 600, "num_crop": 2, "codec": "topk", "top_k": 3}}
    plan = tiny(root, images=more, tables={"main": {"images": ["rded", "coarse", "few"], "rows": ["images", "slc"]}})
    labels = [spec for spec in plan.labels.values() if plan.images[spec.images].method == "rded"]
    assert sorted((spec.codec, spec.top_k) for spec in labels) == [("topk", 3), ("u4", 0), ("u8", 0)]
    assert len({spec.images for spec in labels}) == 1
    refuse(root, "top_k 5 with codec u8", images={"rded": {"top_k": 5}})


def test_numbers_of_kept_logits_that_cannot_be_are_refused(root: Path) -> None:
    refuse(root, "top_k 5 with codec u8, which keeps all 10 logits; set `codec: topk`", labels={"top_k": 5})
    refuse(root, "labels.top_k is 11, but the dataset has 10 classes", labels={"codec": "topk", "top_k": 11})
    refuse(root, "labels.top_k is not set, which means 100, but .* 10 classes; set it to 10", labels={"codec": "topk"})
    refuse(
        root,
        "evaluation 'hald' uses the top_k = 11 largest logits, but there are 10 classes; set top_k to 10",
        evaluations={"hald": {"top_k": 11}},
    )
    refuse(
        root,
        "top_k = 6 largest logits, but the store keeps 5 per label",
        labels={"codec": "topk", "top_k": 5},
        evaluations={"hald": {"top_k": 6}},
    )
    kept = tiny(root, labels={"codec": "topk", "top_k": 10}, evaluations={"hald": {"top_k": 10}})
    assert {spec.top_k for spec in kept.labels.values()} == {10}
    assert {spec.top_k for spec in tiny(root).labels.values()} == {0}


def test_gift_needs_all_logits(root: Path) -> None:
    all_of_them = "evaluation 'hald' has loss 'gift', which compares all 10 logits of a label; "
    gift = {"hald": {"loss": "gift"}}
    refuse(root, all_of_them + "top_k is 5: leave it empty", evaluations={"hald": {"loss": "gift", "top_k": 5}})
    stored = {"codec": "topk", "top_k": 5}
    refuse(root, all_of_them + "the store keeps 5: set another `codec`", labels=stored, evaluations=gift)


def test_batches_that_leave_one_image_are_refused(root: Path) -> None:
    refuse(root, "20 images in batches of 19 leave a batch of one.* set labels.batch to 20", labels={"batch": 19})
    refuse(root, "1 is less than the minimum of 2", labels={"batch": 1})


def test_label_uses_counts_the_labels_that_are_stored(root: Path) -> None:
    """SLC 5 at IPC 2 rounded down is two labels per image."""
    table = {"main": {"caption": "x", "slc": [5], "evaluations": ["hald"]}}
    uses = {"hald": {"epochs": 40, "hard_epochs": None, "label_uses": 10}}
    for rounding, soft in (("floor", 20), ("batches", 23)):
        plan = tiny(root, tables=table, evaluations=uses, slc_rounding=rounding, labels={"batch": 8})
        (spec,) = (plan.runs[cell.run] for cell in plan.tables["main"].cells)
        assert sum(stage.epochs for stage in spec.stages if stage.kind == "soft") == soft
        assert spec.slc == (4 if rounding == "floor" else 4.8)


def test_datasets_and_recipes_that_do_not_fit_are_refused(root: Path) -> None:
    for change, message in (
        ({"resize": 40}, "source sklearn_digits has images of one size"),
        ({"source": "imagefolder", "resize": 16}, "is smaller than size"),
        ({"source": "imagefolder", "resize": 40}, "crop: padded, which needs images of the input size"),
    ):
        raw = {"experiments": ["tiny"], "datasets": {"digits": change}}
        raw["override"] = {"tiny": {"teachers": {"resnet10": {"recipe": {"crop": "padded"}}}}}
        with pytest.raises(UserError, match=message):
            make_plan(raw, root)


def test_a_dataset_has_the_keys_of_its_source(root: Path) -> None:
    for change, message in (
        ({"download": True}, r"unknown key 'download' of source 'sklearn_digits' \(it takes size, classes"),
        ({"source": "torchvision"}, "datasets.digits: 'variant' is missing"),
        (
            {"source": "image_folder"},
            "datasets.digits.source: 'image_folder' is not one of .*Did you mean 'imagefolder'",
        ),
    ):
        with pytest.raises(UserError, match=message):
            make_plan({"experiments": ["tiny"], "datasets": {"digits": change}}, root)


def test_class_names_that_look_like_numbers_stay_text(root: Path) -> None:
    raw = {"experiments": ["tiny"], "datasets": {"digits": {"subset": ["0", "1"], "classes": "2"}}}
    config, _ = load_config(raw, root)
    assert config.datasets["digits"].subset == ("0", "1")
    assert config.datasets["digits"].classes == 2


def test_a_table_asks_only_for_blocks_that_it_needs(root: Path) -> None:
    main = yaml.safe_load(TINY_DEMO)["tables"]["main"]
    plan = make_plan(
        {
            "experiments": ["tiny"],
            "jobs": {"views_per_job": 2, "seeds_per_job": 2},
            "override": {
                "tiny": {
                    "tables": {"long": main | {"slc": [20], "seeds": 7, "rows": ["slc"]}, "wide": main | {"seeds": 7}}
                }
            },
        },
        root,
    )
    graph = Graph(plan)
    wanted = graph.wanted(JobId("table", "main"), "runs")
    assert sorted({Path(path).name for path in wanted}) == ["00000-00001.json"]
    short = next(key for key, run in plan.runs.items() if run.slc == 4)
    views = graph.wanted(JobId("evaluate", short, "00000-00001"), "labels")
    assert [Path(path).name for path in views] == ["00000-00001.json"]
    with pytest.raises(UserError, match="not part of this plan"):
        plan.key("evaluate", "digits/old_0123456789")


@pytest.mark.parametrize("seeds", [(3, 1), (1, 3)])
def test_a_training_of_two_tables_has_the_seeds_of_the_larger(seeds: tuple[int, int], root: Path) -> None:
    content = yaml.safe_load(TINY_DEMO)
    table = content["tables"]["main"]
    content["tables"] = {name: table | {"seeds": n} for name, n in zip(("main", "side"), seeds, strict=True)}
    (root / "config/experiments/tiny.yaml").write_text(yaml.safe_dump(content))
    plan = tiny(root)
    assert [table.seeds for table in plan.tables.values()] == list(seeds)
    assert {plan.needed["evaluate", run] for run in plan.runs} == {3}


def test_one_table_of_two_experiments(root: Path) -> None:
    """The same cells are there once, others are added, contradictions are refused."""
    other = root / "config/experiments/tiny2.yaml"
    other.write_text(TINY_DEMO)
    both = {"experiments": ["tiny", "tiny2"]}
    assert make_plan(both, root).tables == tiny(root).tables
    other.write_text(TINY_DEMO.replace("images: [rded], ipc: [2], slc: [4]", "images: [rded], ipc: [2], slc: [6]"))
    assert [cell.row for cell in make_plan(both, root).tables["main"].cells] == [("rded", "4")] * 2 + [
        ("rded", "6")
    ] * 2
    other.write_text(TINY_DEMO.replace("caption: small", "caption: other"))
    with pytest.raises(UserError, match="with caption 'small' and 'other'"):
        make_plan(both, root)
    other.write_text(
        TINY_DEMO.replace("hald: {order: soft-hard-soft, epochs: 4", "hald: {order: soft-hard-soft, epochs: 6")
    )
    with pytest.raises(UserError, match="different runs into one cell"):
        make_plan(both, root)


def test_hard_labels_alone_are_one_training_for_all_slcs(root: Path) -> None:
    table = {"images": ["rded"], "sli": [1, 2], "ipc": [2], "rows": ["sli"]}
    plan = _with_table(root, table | {"evaluations": ["hard_only"]})
    (run,) = plan.runs.values()
    assert (run.pool, run.slc) == (0, 0)
    assert [plan.needed["relabel", key] for key in plan.labels] == [1]  # the store comes to be with its first view
    content = yaml.safe_load((root / "config/experiments/tiny.yaml").read_text())
    content["evaluations"]["own"] = {"order": "hard", "hard_temperature": "matched"}
    content["tables"]["main"]["evaluations"] = ["own"]
    (root / "config/experiments/tiny.yaml").write_text(yaml.safe_dump(content))
    assert {run.pool for run in tiny(root).runs.values()} == {2, 4}  # it looks at the labels


def test_an_analysis_has_the_views_it_reads_whatever_its_students_used(root: Path) -> None:
    content = yaml.safe_load(TINY_DEMO)
    content["analyses"] = {
        "laws": {"kind": "theory", "images": ["rded"], "ipc": [2], "slc": 6} | {"evaluations": ["hard_only"]}
    }
    (root / "config/experiments/tiny.yaml").write_text(yaml.safe_dump(content))
    plan = tiny(root)
    (subject,) = next(iter(plan.analyses.values())).subjects
    assert plan.runs[subject.run or ""].pool == 0
    assert plan.needed["relabel", subject.labels] >= 3


def test_settings_of_soft_stages_are_no_part_of_a_training_without_one(root: Path) -> None:
    table = {"images": ["rded"], "slc": [2], "ipc": [2], "rows": ["slc"]}
    content = yaml.safe_load(TINY_DEMO)
    content["evaluations"] |= {"other": {"order": "hard", "kd_scale": "T2", "temperature": 4, "sampling": "epoch"}}
    content["tables"] = {
        "main": {"caption": "x", "students": ["resnet10"], "seeds": 1, "evaluations": ["hard_only", "other"]} | table
    }
    (root / "config/experiments/tiny.yaml").write_text(yaml.safe_dump(content))
    assert len(tiny(root).runs) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"students": {"resnet10": {"arch": "small/resnet10-w4", "published_as": "resnet81"}}},
            "Did you mean 'resnet18'",
        ),
        (
            {"evaluations": {"hald": {"hard_temperature": "matched", "top_k": 3}}},
            "of 3 kept logits it is 0.333 at least",
        ),
        (
            {"analyses": {"steps": {"kind": "updates", "images": ["rded"], "ipc": [2], "evaluations": ["hard_only"]}}},
            "leave out adaptive schedules and single stages",
        ),
    ],
)
def test_what_cannot_be_is_refused_when_planning(root: Path, changes: dict[str, Any], message: str) -> None:
    content = yaml.safe_load(TINY_DEMO)
    for part, values in changes.items():
        for name, value in values.items():
            content.setdefault(part, {})[name] = content.get(part, {}).get(name, {}) | value
    (root / "config/experiments/tiny.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(UserError, match=message):
        tiny(root)


def test_a_table_of_several_grids(root: Path) -> None:
    """Like the paper's main table: everything Soft-Only, and one column of HALD."""
    grids = [{"evaluations": ["soft_only"]}, {"images": ["rded"], "evaluations": ["hald"], "label": "Ours"}]
    table = {"images": ["rded", "real"], "sli": [1, 2], "ipc": [2, 3], "rows": ["ipc"], "columns": ["sli", "label"]}
    plan = _with_table(root, table | {"grids": grids})
    cells = plan.tables["main"].cells
    assert len(cells) == 2 * 2 * 3
    assert {cell.column for cell in cells} == {(sli, name) for sli in "12" for name in ("rded", "real", "Ours")}
    ours = next(plan.runs[cell.run] for cell in cells if cell.row == ("3",) and cell.column == ("2", "Ours"))
    assert (ours.ipc, ours.slc, len(ours.stages)) == (3, 6, 3)


def test_a_grid_has_its_own_labels_instead_of_the_tables(root: Path) -> None:
    table = {"images": ["rded"], "ipc": [2], "evaluations": ["hald"], "rows": ["ipc"], "columns": ["slc"], "sli": [1]}
    plan = _with_table(root, table | {"grids": [{}, {"slc": [8]}, {"sli": [2]}]})
    assert [cell.column for cell in plan.tables["main"].cells] == [("2",), ("8",), ("4",)]


def _with_table(root: Path, table: dict[str, Any]) -> Plan:
    content = yaml.safe_load(TINY_DEMO)
    content["tables"] = {"main": {"caption": "x", "students": ["resnet10"], "seeds": 1} | table}
    (root / "config/experiments/tiny.yaml").write_text(yaml.safe_dump(content))
    return tiny(root)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"images": ["rded"], "ipc": [2], "evaluations": ["hald"]}, "needs `slc` .* or `sli`"),
        ({"images": ["rded"], "ipc": [2], "slc": [2], "sli": [1], "evaluations": ["hald"]}, "one of the two"),
        ({"images": ["rded"], "ipc": [2], "slc": [2]}, "has no `evaluations`"),
        ({"images": ["rded"], "ipc": [2, 3], "slc": [2], "evaluations": ["hald"]}, "2 and 3 of 'ipc' in one cell"),
        (
            {"images": ["rded"], "ipc": [2], "slc": [2], "evaluations": ["hald"], "rows": ["image"]},
            "shows 'image'. Did",
        ),
    ],
)
def test_tables_that_make_no_sense_are_refused(root: Path, table: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        _with_table(root, table)


def test_printed_numbers_against_the_paper() -> None:
    """A handful typed by hand from the paper's tables."""
    paper = read_paper(ROOT)
    counted = {name: len(cells) for name, cells in paper.cells.items()}
    assert counted["tab8_main_ablation"] == 192
    assert counted["tab18_more_ablation"] == 128

    def printed(table: str, *place: object) -> Printed:
        found = paper.printed(table, dict(zip(PLACE, place, strict=False)))
        assert found is not None
        return found

    tiny, imagenet = ("tab1_main_tiny_imagenet", "tiny_imagenet"), ("tab2_main_imagenet1k", "imagenet1k")
    cifar = ("tab6_more_datasets", "cifar100")
    assert printed(*tiny, "fadrm", "hald", "resnet18", 10, 20).value == 22.8
    assert printed(*tiny, "sre2l", "soft_only", "resnet18", 10, 10).value == 8.3
    assert printed(*imagenet, "fadrm", "hald", "resnet18", 50, 250).value == 49.5
    assert printed(*cifar, "fadrm", "soft_only", "resnet18", 10, 10).value == 10.6
    assert printed(*cifar, "fadrm", "hald", "resnet18", 10, 10).value == 21.0
    assert printed("tab19_adaptive", "cifar100", "fadrm", "hald_adaptive", "resnet18", 10, 20).value == 25.8
    assert printed("tab7_soft_phase_length", "imagenet1k", "fadrm", "hald_soft200", "resnet18", 10, 100).value == 35.6
    copied = printed(*imagenet, "lpld", "soft_only", "resnet18", 10, 100)
    assert (copied.value, copied.dagger) == (23.1, True)
    content = read_yaml(ROOT / "config/paper/tables.yaml")
    assert sum(len(table["records"]) for table in content.values()) == 595
    assert sorted({table["number"] for table in content.values() if "number" in table}) == [
        *range(1, 17),
        *range(18, 22),
    ]


def test_a_reduced_study_takes_the_rates_and_numbers_of_what_it_stands_for() -> None:
    """ImageWoof at 64 px with a small network: the released rates of ResNet-18 and the paper's Table 6 beside FADRM."""
    plan = make_plan({"experiments": ["studies/cpu/experiments/woof"]}, ROOT)
    table = plan.tables["study_woof"]
    printed = {(*cell.row, *cell.column): cell.paper.value for cell in table.cells if cell.paper}
    assert printed == {
        ("fadrm", "10", "soft_only"): 23.5,
        ("fadrm", "10", "hald"): 27.4,
        ("fadrm", "20", "soft_only"): 27.4,
        ("fadrm", "20", "hald"): 29.3,
    }
    runs = [plan.runs[cell.run] for cell in table.cells]
    assert {(run.lr, run.eta, run.origin["lr"]) for run in runs} == {(0.0005, 1, "code")}
    assert {tuple(stage.epochs for stage in run.stages) for run in runs} == {(200,), (83, 33, 84)}


def test_the_whole_paper_is_planned() -> None:
    """Every number that the paper prints in a table has its cell, from four experiments, in one plan."""
    plan = make_plan({"experiments": ["paper"]}, ROOT)
    content = read_yaml(ROOT / "config/paper/tables.yaml")
    for name, table in content.items():
        if "number" in table:
            assert sum(cell.paper is not None for cell in plan.tables[name].cells) == len(table["records"]), name
    # the numbers of the running text; of two for one setting one is a note
    claims = [cell.paper for name in ("claims_accuracy", "claims_silhouette") for cell in plan.tables[name].cells]
    assert sorted(paper.value for paper in claims if paper) == [0.162, 0.636, 36.9, 42.7, 49.5]
    assert any("elsewhere 41.8" in note for paper in claims if paper for note in paper.notes)
    assert {cell.column[0] for cell in plan.tables["tab8_main_ablation"].cells} == {"imagenet1k", "tiny_imagenet"}
    ablation = plan.tables["tab8_main_ablation"].cells
    floored = next(cell for cell in ablation if cell.row[0] == "20" and cell.column == ("imagenet1k", "50"))
    assert plan.runs[floored.run].slc == 40  # two whole label epochs, as released


def test_an_experiment_that_includes_others(root: Path) -> None:
    folder = root / "config/experiments"
    (folder / "both.yaml").write_text("includes: [tiny]\n")
    assert make_plan({"experiments": ["both"]}, root).tables == tiny(root).tables
    for text in ("includes: [both]\n", "includes: tiny\n", "includes: [tiny]\ndataset: digits\n"):
        (folder / "both.yaml").write_text(text)
        with pytest.raises(UserError, match="holds the list `includes` and nothing else"):
            make_plan({"experiments": ["both"]}, root)


def test_an_experiment_that_extends_another(root: Path) -> None:
    """It has everything of the other but its tables, analyses and figures, and shares its runs."""
    folder = root / "config/experiments"
    table = "{caption: more, images: [rded], ipc: [2], slc: [4], evaluations: [hald], students: [resnet10], seeds: 1}"
    (folder / "more.yaml").write_text(f"extends: tiny\ntables: {{more: {table}}}\n")
    plan = make_plan({"experiments": ["more"]}, root)
    assert list(plan.tables) == ["more"]
    assert set(plan.runs) <= set(tiny(root).runs)
    (folder / "both.yaml").write_text("includes: [tiny]\n")
    wrong = {
        "more": "circle: more -> more",
        "[tiny]": "`extends` names one other experiment",
        "both": "'both' only includes other experiments",
        "tinny": r"no experiment 'tinny' \(experiment 'more' extends it\)",
    }
    for base, message in wrong.items():
        (folder / "more.yaml").write_text(f"extends: {base}\ntables: {{more: {table}}}\n")
        with pytest.raises(UserError, match=message):
            make_plan({"experiments": ["more"]}, root)


def test_an_experiment_with_a_slash_in_its_name_is_a_file(root: Path) -> None:
    """In `experiments`, `extends`, `includes` and `override`, counted from the project's root."""
    folder = root / "studies/one/experiments"
    folder.mkdir(parents=True)
    table = "{caption: more, images: [rded], ipc: [2], slc: [4], evaluations: [hald], students: [resnet10], seeds: 1}"
    (folder / "base.yaml").write_text(f"extends: tiny\ntables: {{more: {table}}}\n")
    (folder / "long.yaml").write_text(f"extends: studies/one/experiments/base\nepochs: 9\ntables: {{long: {table}}}\n")
    (folder / "both.yaml").write_text("includes: [studies/one/experiments/base, studies/one/experiments/long]\n")
    raw = {"experiments": ["studies/one/experiments/both"]}
    assert list(make_plan(raw, root).tables) == ["more", "long"]
    raw = {
        "experiments": [str(folder / "base")],
        "override": {str(folder / "base"): {"tables": {"more": {"seeds": 4}}}},
    }
    assert make_plan(raw, root).tables["more"].seeds == 4
    assert experiment_names(root) == ["tiny", *(f"studies/one/experiments/{name}" for name in ("base", "both", "long"))]
    with pytest.raises(
        UserError, match="no experiment 'studies/one/experiments/bas'.*Did you mean 'studies/one/experiments/base'"
    ):
        make_plan({"experiments": ["studies/one/experiments/bas"]}, root)
    (folder / "base.yaml").write_text("extends: studies/one/experiments/long\n")
    with pytest.raises(UserError, match="circle: studies/one/experiments/base -> studies/one/experiments/long -> "):
        make_plan({"experiments": ["studies/one/experiments/base"]}, root)


def test_values_from_the_command_line_are_typed(root: Path) -> None:
    """Snakemake hands nested --config values over as text."""
    text = {"evaluations": {"hald": {"lr": "1e-3", "hard_epochs": "2"}}, "tables": {"main": {"slc": ["2", "4"]}}}
    text["labels"] = {"teachers": ["resnet10", "resnet10"], "weights": ["0.75", "0.25"]}  # type: ignore[assignment]
    _, experiments = load_config({"experiments": ["tiny"], "override": {"tiny": text}}, root)
    assert experiments["tiny"].evaluations["hald"].lr == 0.001
    assert experiments["tiny"].tables["main"].slc == (2, 4)
    assert experiments["tiny"].labels.weights == (0.75, 0.25)


def test_what_a_table_costs_before_anything_was_timed() -> None:
    """The paper's Table 1: five columns at two SLIs, five IPCs, three seeds, 300 epochs of 200 classes."""
    cost = next(c for c in table_costs(make_plan({"experiments": ["paper"]})) if c.table == "tab1_main_tiny_imagenet")
    assert cost.students == 150
    assert cost.images == 5 * 2 * 3 * 300 * 200 * (10 + 20 + 30 + 40 + 50)
    assert cost.hours is None
