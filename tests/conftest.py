"""Shared fixtures: a small prepared dataset, a tiny teacher, and a copy of the project to run Snakemake in."""

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[1]
PARTS = ["Snakefile", "workflow", "config", "src", "profiles", "slurm", "envs"]

# Snakemake's longest call here, the small experiment from nothing, takes half a minute on two idle cores.
CALL_SECONDS = 900.0

torch.set_num_threads(1)
os.environ.setdefault("HALD_DEVICE", "cpu")


# What a test asks for when it runs the whole chain through Snakemake.
CHAINS = {"project", "finished", "copy", "reported"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything that starts Snakemake, and all fault injection, is slow: `make test-fast` leaves it out."""
    for item in items:
        if "faults" in item.path.parts or CHAINS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that the first process of a test session to ask for it makes, and all of them use.

    Nobody may change what is in it: with `pytest --numprocesses` other workers read it at the same time.
    """
    own = factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared" / name
    folder.parent.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            making = folder.with_suffix(".making")
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir()
            make(making)
            making.rename(folder)
    return folder


@dataclass(frozen=True)
class Project:
    """A copy of the project in which Snakemake runs with the copy's own source."""

    folder: Path

    def run(self, *arguments: str, check: bool = True, cores: int = 2) -> subprocess.CompletedProcess[str]:
        """Run snakemake."""
        command = [sys.executable, "-m", "snakemake", "--cores", str(cores), *arguments]
        return self.call(command, check=check)

    def call(self, command: list[str], check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in the copy. After `CALL_SECONDS` it is killed with all that it started, and the test fails."""
        environment = os.environ | {"PYTHONPATH": str(self.folder / "src"), "SLURM_CONF": "/dev/null"}
        environment.pop("HALD_PLAN", None)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        process = subprocess.Popen(command, cwd=self.folder, env=environment, start_new_session=True, **pipes)
        try:
            output, _ = process.communicate(timeout=CALL_SECONDS)
        except BaseException as stopped:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            if not isinstance(stopped, subprocess.TimeoutExpired):
                raise
            pytest.fail(f"not done after {CALL_SECONDS:g} s: {shlex.join(command)}\n{output[-6000:]}")
        assert not check or process.returncode == 0, output[-6000:]
        return subprocess.CompletedProcess(command, process.returncode, output)

    def planned(self, *arguments: str) -> dict[str, int]:
        """Job counts of a dry run, by rule."""
        return job_counts(self.run("-n", *arguments).stdout)

    def copied(self, folder: Path) -> "Project":
        """A copy of this project, which Snakemake may work in at the same time."""
        return Project(Path(shutil.copytree(self.folder, folder / "project", symlinks=True)))

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace text in one of the copy's files."""
        path = self.folder / file
        text = path.read_text()
        assert old in text, f"{old!r} is not in {file}"
        path.write_text(text.replace(old, new))


def job_counts(output: str) -> dict[str, int]:
    """Snakemake's own `Job stats` table."""
    table = output.partition("Job stats:")[2].partition("total")[0]
    return {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", table, re.M)}


def copy_known(config: Path) -> None:
    """What every config refers to: datasets, standard evaluations, published settings."""
    (config / "experiments").mkdir(parents=True)
    (config / "paper").mkdir()
    for file in ("datasets.yaml", "evaluations.yaml", "presets.yaml", "paper/evaluation.yaml", "paper/tables.yaml"):
        shutil.copy(ROOT / "config" / file, config / file)


def copy_project(target: Path) -> Project:
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, target / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / part)
    return Project(target)


# The demo, small enough for a test: one method, one SLC, a few epochs.
TINY_DEMO = """
dataset: digits
threads: 1
teacher: resnet10
teachers:
  resnet10: {arch: small/resnet10-w4, recipe: {epochs: 2, batch: 128, optimizer: adam, lr: 0.01, crop: resized}}
images:
  rded: {method: rded, mipc: 600, num_crop: 2}
  real: {method: real}
students:
  resnet10: {arch: small/resnet10-w4}
evaluations:
  soft_only: {order: soft, epochs: 3}
  hald: {order: soft-hard-soft, epochs: 4, hard_epochs: 1}
tables:
  main:
    {caption: small, images: [rded], ipc: [2], slc: [4], evaluations: [soft_only, hald], students: [resnet10], seeds: 2}
  other: {caption: real images, images: [real], ipc: [2], slc: [2], evaluations: [hald], students: [resnet10], seeds: 1}
"""


# What Snakemake does for it, by rule.
ALL_JOBS = {
    "dataset": 1,
    "squeeze": 1,
    "rank": 1,
    "synthesize": 2,
    "relabel": 2,
    "evaluate": 3,
    "table": 2,
    "preview": 2,
    "all": 1,
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Sums depend on the number of threads: a test that changes it must not change what later ones train."""
    yield
    torch.set_num_threads(1)


os.environ.setdefault("HALD_DEVICE", "cpu")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A fresh copy of the project with the small experiment `tiny` as its config."""
    return tiny_project(tmp_path / "project")


def tiny_project(folder: Path) -> Project:
    copy = copy_project(folder)
    (folder / "config/experiments/tiny.yaml").write_text(TINY_DEMO)
    (folder / "config/config.yaml").write_text("experiments: [tiny]\ndatasets: {digits: {floor: 0}}\n")
    return copy


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The small experiment, run to its tables."""

    def make(folder: Path) -> None:
        project = tiny_project(folder / "project")
        assert project.planned() == ALL_JOBS
        project.run()

    made = made_once(tmp_path_factory, "finished", make) / "project"
    return Project(made).copied(tmp_path_factory.mktemp("finished"))


# The keys by which the specs below name what they are made from.
DATA, TEACHER, IMAGES, LABELS, RANKING, STATISTICS, UNITS = (str(i) * 10 for i in range(7))


def job_for(
    spec: object, folder: Path, made_from: Mapping[str, Path], units: Iterable[int] = (0,), **more: object
) -> "Job[Any]":  # noqa: F821
    """A job as its script gets it, to make a spec's units in a folder."""
    from hald.jobs.job import Job
    from hald.plan.stages import STAGES

    stage = next(stage for stage in STAGES.values() if isinstance(spec, stage.spec))
    kept = more.get("kept", 0)
    files = {unit: tuple(folder / name for name in stage.files(spec, unit, unit < kept)) for unit in units}
    receipt = folder / "done/block.json" if stage.blocks else None
    about = {"stage": stage.name, "make": stage.make(spec), "receipt": receipt}
    about["partial"] = folder.with_name(f"{folder.name}.partial")
    return Job(spec, folder, files, dict(made_from), **(about | more))


def make(
    spec: object, folder: Path, made_from: Mapping[str, Path], units: Iterable[int] = (0,), **more: object
) -> Path:
    """Do a stage's work directly, without Snakemake."""
    job_for(spec, folder, made_from, units, **more).run()
    return folder


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """scikit-learn's digits, prepared."""

    def prepared(folder: Path) -> None:
        from hald.datasets.spec import DatasetSpec

        spec = DatasetSpec("digits", "sklearn_digits", None, "train", "test", None, 10, 32, None, None, False, 10)
        make(spec, folder / "data", {})

    return made_once(tmp_path_factory, "digits", prepared) / "data"


def trained(factory: pytest.TempPathFactory, name: str, digits: Path, spec: "TeacherSpec") -> Path:  # noqa: F821
    """A teacher of the digits."""

    return made_once(factory, name, lambda folder: make(spec, folder / "teacher", {DATA: digits})) / "teacher"


@pytest.fixture(scope="session")
def teacher(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small teacher of the digits, trained for one epoch."""
    return trained(tmp_path_factory, "teacher", digits, teacher_spec())


@pytest.fixture(scope="session")
def good_teacher(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher that knows its digits."""
    from hald.squeeze.spec import Recipe

    recipe = Recipe(epochs=8, batch=64, optimizer="adam", lr=0.005, crop="resized")
    return trained(tmp_path_factory, "good-teacher", digits, teacher_spec(arch="small/resnet10-w8", recipe=recipe))


@pytest.fixture(scope="session")
def ranking(digits: Path, teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ranking of six digits per class, three crops each, by the small teacher."""

    sources = {DATA: digits, TEACHER: teacher}
    made = made_once(tmp_path_factory, "ranking", lambda f: make(ranking_spec(), f / "ranking", sources, range(10)))
    return made / "ranking"


def teacher_spec(**changes: object) -> "TeacherSpec":  # noqa: F821
    from hald.squeeze.spec import Recipe, TeacherSpec

    values = {
        "dataset": "0" * 10,
        "arch": "small/resnet10-w4",
        "source": "train",
        "weights": None,
        "path": None,
        "digest": None,
        "recipe": Recipe(epochs=1, batch=64, optimizer="adam", lr=0.01, crop="resized"),
        "mean": (0.3, 0.3, 0.3),
        "std": (0.3, 0.3, 0.3),
        "scale": (0.3, 1.0),
        "ratio": (0.75, 4 / 3),
        "flip": 0.0,
        "size": 32,
        "classes": 10,
        "seed": 0,
        "threads": 1,
    }
    return TeacherSpec(**(values | changes))


def images_spec(**changes: object) -> "ImagesSpec":  # noqa: F821
    from hald.synthesis.spec import FromDataset, ImagesSpec

    values = {
        "method": "real",
        "dataset": "0" * 10,
        "teachers": (),
        "classes": 10,
        "ipc": 2,
        "size": 32,
        "source": FromDataset(None, 0),
        "threads": 1,
    }
    return ImagesSpec(**(values | changes))


def ranking_spec(**changes: object) -> "RankingSpec":  # noqa: F821
    from hald.synthesis.spec import RankingSpec

    values = {
        "dataset": "0" * 10,
        "teacher": "1" * 10,
        "classes": 10,
        "size": 32,
        "side": 32,
        "mipc": 6,
        "num_crop": 3,
        "crop_scale": (0.08, 1.0),
        "seed": 0,
        "threads": 1,
    }
    return RankingSpec(**(values | changes))


def statistics_spec(**changes: object) -> "StatisticsSpec":  # noqa: F821
    from hald.synthesis.spec import StatisticsSpec

    values = {
        "dataset": "0" * 10,
        "teacher": "1" * 10,
        "kind": "exact",
        "classes": 10,
        "size": 32,
        "scale": (0.3, 1.0),
        "ratio": (0.75, 4 / 3),
        "flip": 0.5,
        "batch": 200,
        "seed": 0,
        "threads": 1,
    }
    return StatisticsSpec(**(values | changes))


def units_spec(method: str, **changes: object) -> "UnitsSpec":  # noqa: F821
    """A short optimisation of digits: chunks of five classes."""
    from hald.synthesis.spec import Fadrm, Lpld, Patches, Recover, Sre2l, UnitsSpec

    stages = 2 if method == "fadrm" else 1
    own = {"sre2l": Sre2l(None), "fadrm": Fadrm(Patches("4" * 10, "medium", 1), 0.5), "lpld": Lpld(2, "5" * 10)}
    values = {
        "method": method,
        "dataset": "0" * 10,
        "teachers": ("1" * 10,),
        "arch": "small/resnet10-w4",
        "classes": 10,
        "size": 32,
        "batch": 5,
        "own": own[method],
        "recover": Recover(budgets=(4,) * stages, sizes=(32,) * stages, flip=0.0, roll=(0, 4), scale=(0.3, 1.0)),
        "seed": 0,
        "threads": 1,
    }
    return UnitsSpec(**(values | changes))


def labels_spec(**changes: object) -> "LabelsSpec":  # noqa: F821
    from hald.labels.spec import LabelsSpec

    values = {
        "images": "2" * 10,
        "teachers": ("1" * 10,),
        "weights": (1.0,),
        "arch": "resnet10-w4",
        "classes": 10,
        "count": 20,
        "size": 32,
        "batch": 8,
        "mix": "cutmix",
        "mix_alpha": 1.0,
        "scale": (0.3, 1.0),
        "ratio": (0.75, 4 / 3),
        "flip": 0.5,
        "bn_mode": "running",
        "codec": "u8",
        "top_k": 0,
        "seed": 42,
        "threads": 1,
    }
    return LabelsSpec(**(values | changes))


def run_spec(**changes: object) -> "RunSpec":  # noqa: F821
    from hald.evaluation.spec import LossSpec, Phase, RunSpec

    stages = changes.get("stages", (Phase("soft", 2), Phase("hard", 2), Phase("soft", 2)))
    values = {
        "dataset": "0" * 10,
        "labels": "3" * 10,
        "arch": "small/resnet10-w4",
        "ipc": 2,
        "pool": 6,
        "batch": 8,
        "classes": 10,
        "size": 32,
        "mean": (0.3, 0.3, 0.3),
        "std": (0.3, 0.3, 0.3),
        "scale": (0.3, 1.0),
        "ratio": (0.75, 4 / 3),
        "flip": 0.0,
        "stages": stages,
        "epochs": sum(stage.epochs or 0 for stage in stages),
        "adaptive": None,
        "lr": 0.001,
        "eta": 2.0,
        "weight_decay": 0.01,
        "beta2": 0.999,
        "loss": LossSpec("kl", {"temperature": 20.0, "squared": False}),
        "handover": "carry",
        "smoothing": 0.8,
        "hard_temperature": 1.0,
        "sampling": "permutation",
        "top_k": None,
        "measure_every": 10,
        "precision": "float32",
        "compile": "off",
        "threads": 1,
        "origin": {},
    }
    return RunSpec(**(values | changes))


@pytest.fixture(scope="session")
def real_set(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two real digits per class."""

    made = made_once(tmp_path_factory, "real-set", lambda f: make(images_spec(), f / "set.zarr", {DATA: digits}))
    return made / "set.zarr"


@pytest.fixture(scope="session")
def first_store(real_set: Path, teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A label store with two views of those digits (batches of 8, 8 and 4), to be read only."""

    def labelled(folder: Path) -> None:
        make_labels(labels_spec(), real_set, [teacher], folder / "labels.zarr", range(2))

    return made_once(tmp_path_factory, "store", labelled) / "labels.zarr"


@pytest.fixture
def store(first_store: Path, tmp_path: Path) -> Path:
    """The same store for one test alone. As in every store, its images are links to those of the image set."""

    def link_images(source: str, target: str) -> None:
        (os.link if "images" in Path(source).parts else shutil.copyfile)(source, target)

    return Path(shutil.copytree(first_store, tmp_path / "labels.zarr", copy_function=link_images))


def make_labels(spec: "LabelsSpec", images: Path, teachers: list[Path], store: Path, views: range) -> Path:  # noqa: F821
    """Relabel directly, without Snakemake."""
    from hald.code_digests import code_digests
    from hald.keys import key_of
    from hald.plan.ledger import code_name

    code = code_digests()["relabel"]
    name = code_name("relabel", code)
    sources = {spec.images: images, **dict(zip(spec.teachers, teachers, strict=True))}
    return make(spec, store, sources, views, key=key_of("relabel", spec, name), code=code, code_name=name)


@dataclass(frozen=True)
class Training:
    """Where a test trains students: from which dataset and store, and where to."""

    digits: Path
    store: Path
    folder: Path

    @property
    def records(self) -> Path:
        return self.folder / "records"

    @property
    def partial(self) -> Path:
        return job_for(run_spec(), self.records, {}).partial

    def train(self, spec: "RunSpec", seeds: "Iterable[int]" = (0,), **more: object) -> None:  # noqa: F821
        """Train the students that are not there."""
        identity = {"key": "k" * 10, "code": "c" * 64, "code_name": "part:1"}
        make(spec, self.records, {DATA: self.digits, LABELS: self.store}, seeds, **identity, **more)


@contextlib.contextmanager
def layer_seeds() -> Iterator[list[int]]:
    """What torch's generator was seeded with before each pass in training: layers that draw (dropout) depend on it."""
    seeds: list[int] = []

    def look(module: torch.nn.Module, _: object) -> None:
        if module.training:
            seeds.append(torch.initial_seed())

    handle = torch.nn.modules.module.register_module_forward_pre_hook(look)
    try:
        yield seeds
    finally:
        handle.remove()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
