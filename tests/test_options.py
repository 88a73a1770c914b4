"""Every option of the config reaches its number, and moves a key or is known not to. The table is in options.py.

An experiment goes in as YAML, the workflow's own scripts run in this process, and what they ask of torch, torchvision
and zarr is written down while they do: every pass through a network, every optimiser and its steps.
"""

import contextlib
import copy
import functools
import inspect
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml
import zarr
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from chain import Chain, image_folders, make_chain
from conftest import ROOT, copy_known
from hald.jobs.job import AnyJob
from options import BASE, ROWS, SHOWN, UNMOVED, Row, ruler

SETTINGS = ("experiments", "results", "stores", "jobs", "datasets", "override")  # of config.yaml
NAMES = ("datasets", "teachers", "images", "students", "evaluations", "override")  # maps whose keys are the user's


# What libraries are asked for


@dataclass
class Pass:
    """One pass through a whole network."""

    network: nn.Module
    training: bool
    autocast: torch.dtype | None
    x: Tensor
    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    norms: list[dict[str, Any]] = field(default_factory=list)  # what BN layers were given


@dataclass(frozen=True)
class Step:
    """One step of an optimiser: the loss, the pass and the calls of losses (with their targets) before it."""

    optimizer: torch.optim.Optimizer
    lr: float
    remembers: int  # parameters that it has a state for
    loss: float
    look: Pass
    calls: list[tuple[str, Tensor]]


@dataclass(frozen=True)
class Made:
    """An optimiser when it was made."""

    optimizer: torch.optim.Optimizer
    start: list[Tensor]  # its parameters then
    seed: int  # torch's


@dataclass
class Seen:
    """What a job asked of the libraries."""

    passes: list[Pass] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    made: list[Made] = field(default_factory=list)
    compiled: list[dict[str, Any]] = field(default_factory=list)
    autocasts: list[dict[str, Any]] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)  # of data loaders
    threads: list[int] = field(default_factory=list)

    def trained(self) -> list[Pass]:
        """Passes of a network in training."""
        return [look for look in self.passes if look.training]

    def tested(self) -> list[Pass]:
        """Passes of a network that is asked only."""
        return [look for look in self.passes if not look.training]


class Enough(BaseException):
    """All that was wanted of a job is seen."""


LOSSES = {F.kl_div: "kl_div", F.cross_entropy: "cross_entropy", F.cosine_similarity: "cosine_similarity"}


class Watch(TorchFunctionMode):
    """Writes down calls of loss functions and of BN, and the loss of every backward pass."""

    def __init__(self, with_norms: bool) -> None:
        super().__init__()
        self.with_norms = with_norms
        self.open: list[nn.Module] = []
        self.calls: list[tuple[str, Tensor]] = []
        self.looks: list[Pass] = []
        self.loss = float("nan")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in LOSSES:
            target = args[1] if len(args) > 1 else (kwargs or {}).get("target")
            self.calls.append((LOSSES[func], target.detach().clone()))
        elif func is F.batch_norm and self.with_norms and self.looks:
            self.looks[-1].norms.append(_arguments(func, args, kwargs))
        elif func is Tensor.backward:
            self.loss = args[0].item()
        return func(*args, **(kwargs or {}))


def _arguments(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    given = inspect.signature(func).bind(*args, **(kwargs or {})).arguments
    return {name: value.detach().clone() if isinstance(value, Tensor) else value for name, value in given.items()}


@contextlib.contextmanager
def watching(with_norms: bool, steps: int | None) -> Iterator[Seen]:
    """Write down what is asked of torch; raise Enough after so many optimiser steps."""
    seen, watch = Seen(), Watch(with_norms)

    def enter(module: nn.Module, inputs: tuple[Tensor]) -> None:
        if not watch.open:
            mixed = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
            seen.passes.append(Pass(module, module.training, mixed, inputs[0].detach().clone()))
            watch.looks = seen.passes
        watch.open.append(module)

    def leave(module: nn.Module, _: object, output: Any) -> None:
        watch.open.pop()
        if not watch.open and isinstance(output, Tensor):
            seen.passes[-1].logits = output.detach().float().clone()

    def step(optimizer: torch.optim.Optimizer, *_: object) -> None:
        lr = optimizer.param_groups[0]["lr"]
        seen.steps.append(Step(optimizer, lr, len(optimizer.state), watch.loss, seen.passes[-1], watch.calls))
        watch.calls = []
        if steps is not None and len(seen.steps) >= steps:
            raise Enough

    def made(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        start = [p.detach().clone() for group in self.param_groups for p in group["params"]]
        seen.made.append(Made(self, start, torch.initial_seed()))

    def compiled(function: Any, **how: Any) -> Any:
        seen.compiled.append(how)
        return function

    def autocast(self: Any, *args: Any, **kwargs: Any) -> None:
        seen.autocasts.append(inspect.signature(mixed).bind(self, *args, **kwargs).arguments)
        mixed(self, *args, **kwargs)

    def loader(self: Any, *args: Any, num_workers: int = 0, **kwargs: Any) -> None:
        seen.workers.append(num_workers)
        load(self, *args, **kwargs)

    make, mixed, load = torch.optim.Optimizer.__init__, torch.autocast.__init__, torch.utils.data.DataLoader.__init__
    hooks = [
        register_module_forward_pre_hook(enter),
        register_module_forward_hook(leave, always_call=True),
        register_optimizer_step_pre_hook(step),
    ]
    with pytest.MonkeyPatch.context() as patch, watch, contextlib.ExitStack() as stack:
        for hook in hooks:
            stack.callback(hook.remove)
        patch.setattr(torch.optim.Optimizer, "__init__", made)
        patch.setattr(torch.autocast, "__init__", autocast)
        patch.setattr(torch.utils.data.DataLoader, "__init__", loader)
        patch.setattr(torch, "compile", compiled)
        patch.setattr(torch, "set_num_threads", seen.threads.append)  # and not done: more would only be slower here
        yield seen


# Where experiments are made


@dataclass
class Lab:
    """A folder of raw data and results that all rows share: what has the same key is made once."""

    folder: Path
    chains: dict[str, Chain] = field(default_factory=dict)
    seen: dict[Path, Seen] = field(default_factory=dict)
    steps: int | None = None

    def chain(self, settings: dict[str, Any], place: str) -> Chain:
        """The base experiment with changes, planned, its results in the folder `place`."""
        known = f"{place} {json.dumps(settings)}"
        if known not in self.chains:
            tree = changed(BASE, settings)
            config = {name: tree.pop(name) for name in SETTINGS if name in tree}
            if not (self.folder / place).exists():
                shutil.copytree(self.folder / "config", self.folder / place / "config")
            chain = make_chain(self.folder / place, tree, config.pop("datasets"), **config)
            self.chains[known] = replace(chain, around=self.around)
        return self.chains[known]

    @contextlib.contextmanager
    def around(self, job: AnyJob, file: Path) -> Iterator[None]:
        """Watch a job, whose output is `file`."""
        on_the_way = job.stage in ("statistics", "recover")
        with watching(on_the_way, self.steps if job.stage == "evaluate" else None) as seen:
            self.seen[file] = seen
            yield


def changed(tree: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """A copy of nested mappings with the values of paths `a.b.c`."""
    tree = copy.deepcopy(tree)
    for path, value in settings.items():
        *folders, name = path.split(".")
        functools.reduce(lambda part, folder: part.setdefault(folder, {}), folders, tree)[name] = copy.deepcopy(value)
    return tree


@dataclass
class Case:
    """A row of the table, with its option as it is in the row or (`before`) as it was."""

    row: Row
    lab: Lab
    before: bool = False

    @property
    def was(self) -> "Case":
        """The same with the option as it was."""
        return replace(self, before=True)

    @property
    def chain(self) -> Chain:
        """The planned experiment."""
        new = {} if self.before else {**self.row.along, self.row.option: self.row.value}
        place = f"alone/{ROWS.index(self.row)}-{self.before}" if self.row.alone else "shared"
        return self.lab.chain({**self.row.beside, **new}, place)

    def files(self, rule: str) -> list[Path]:
        """What the jobs of a rule make, made."""
        return [self.chain.need(file) for file in self.chain.outputs(rule)]

    def file(self, rule: str) -> Path:
        """What the only job of a rule makes."""
        (file,) = self.files(rule)
        return file

    def seen(self, rule: str) -> Seen:
        """What the only job of a rule asked of the libraries."""
        return self.lab.seen[self.file(rule)]

    def beginning(self, steps: int) -> Seen:
        """What a training asked up to a step, after which it is broken off."""
        self.files("relabel")
        (record,) = self.chain.outputs("evaluate")
        if record not in self.lab.seen:
            self.lab.steps = steps
            with contextlib.suppress(Enough):
                self.chain.need(record)
            self.lab.steps = None
        return self.lab.seen[record]

    def record(self) -> dict[str, Any]:
        """The record of the only training."""
        return dict(json.loads(self.file("evaluate").read_text()))

    def images(self) -> Any:
        """The pixels of the only image set, (N, 3, S, S)."""
        return zarr.open_group(self.chain.images(), mode="r")["images"][:]

    def stored(self, view: int = 0) -> dict[str, Any]:
        """The arrays of one view of the only label store."""
        arrays = {file.parent.name: file.parent for file in self.chain.store().glob("*/zarr.json")}
        return {name: zarr.open_array(arrays[name], mode="r")[view] for name in arrays if name != "images"}


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Raw data as options.py wants it: dataset `waves` with two more splits, `other` images, foreign teachers."""
    folder = tmp_path_factory.mktemp("options")
    data, size = folder / "data", BASE["datasets"]["waves"]["size"]
    image_folders(data / "waves", {"train": 12, "test": 5, "val": 5, "learn": 12}, 3, size, ruler)
    image_folders(data / "other", {"a": 0, "b": 0, "test": 5, "train": 12}, 3, size, ruler)
    as_tiny_imagenet(data / "other", data / "tiny")
    copy_known(folder / "config")
    for unused in ("datasets", "evaluations", "paper/tables"):  # to be quick: they are read again for every row
        (folder / f"config/{unused}.yaml").write_text("{}\n")
    more = {"extends": "case", "epochs": 7, "tables": BASE["tables"]}
    (folder / "config/experiments/more.yaml").write_text(yaml.safe_dump(more))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HALD_DATA", str(data))
        lab = Lab(folder)
        weights = load_file(lab.chain({}, "shared").teacher() / "teacher.safetensors")
        for number, name in enumerate("ab"):
            save_file({key: value * (number + 1) for key, value in weights.items()}, data / f"{name}.safetensors")
        yield lab


def as_tiny_imagenet(folders: Path, target: Path) -> None:
    """The same images as Tiny-ImageNet is laid out."""
    rows = []
    (target / "val/images").mkdir(parents=True)
    for file in sorted(folders.glob("t*/class*/*.png")):
        split, label = file.parts[-3:-1]
        name = f"{label}_{file.name}"
        place = target / "train" / label / "images" if split == "train" else target / "val/images"
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place / name)
        rows += [f"{name}\t{label}"] if split == "test" else []
    (target / "val/val_annotations.txt").write_text("\n".join(rows))


# Tests


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_options_reach_their_numbers(row: Row, lab: Lab) -> None:
    row.expected(Case(row, lab))


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_options_move_a_key(row: Row, lab: Lab) -> None:
    case = Case(row, lab)
    new = case.chain.keys() - case.was.chain.keys()
    if row.option in UNMOVED:
        assert not new, f"{row.option} is in options.UNMOVED, but moved the keys of {new}"
    else:
        assert new, (
            f"{row.option}: {row.value} plans nothing new: either it is lost on its way, or it must not be part of any "
            f"key; then name it, with the reason, in options.UNMOVED"
        )


def test_every_option_has_a_row() -> None:
    known, rows = set(all_options()), {option_of(row) for row in ROWS}
    missing, gone = sorted(known - rows), sorted(rows - known)
    assert not missing, f"no row in tests/options.py for {missing}: add a second value and where it must be seen"
    assert not gone, f"tests/options.py has rows for {gone}, which the config does not know any more: remove them"
    idle = sorted(set(UNMOVED) - {row.option for row in ROWS})
    assert not idle, f"options.UNMOVED names {idle}, of which there is no row"


def test_second_values_are_new() -> None:
    schema, base = _schema(), {starred(path): value for path, value in _leaves(BASE)}
    defaults = dict(_options(schema, schema, ""))
    for row in ROWS:
        assert row.value != defaults[option_of(row)], f"{row.name}: {row.value} is the default"
        assert row.value != base.get(starred(row.option)), f"{row.name}: {row.value} is what the base has"
        assert row.option not in row.beside or row.beside[row.option] != row.value, row.name


def starred(path: str) -> str:
    """`teachers.t.seed` -> `teachers.*.seed`."""
    parts = path.split(".")
    return ".".join("*" if i == 1 and parts[0] in NAMES else part for i, part in enumerate(parts))


def option_of(row: Row) -> str:
    """A row's option, of an order or a loss with its name: `evaluations.*.loss[gift].weight`."""
    tree = changed(BASE, {**row.beside, **row.along})
    found = starred(row.option).split(".")
    for n, part in enumerate(row.option.split(".")):
        tree = tree.get(part) if isinstance(tree, dict) else None
        if n == 2 and n < len(found) - 1 and isinstance(tree, dict) and "name" in tree:
            found[n] += f"[{tree['name']}]"
    return ".".join(found)


def all_options() -> list[str]:
    """Every option of the generated schema, but those that say what is shown."""
    return [path for path, _ in _options(_schema(), _schema(), "")]


def _schema() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "workflow/schemas/config.schema.yaml").read_text()))


def _options(schema: dict[str, Any], node: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Path and default of every leaf below a node; an experiment's file stands beside config.yaml."""
    properties = dict(node["properties"])
    if not path:
        properties |= schema["$defs"]["Experiment"]["properties"]
    for name, inner in properties.items():
        if not path and name in SHOWN:
            continue
        where = f"{path}.{name}" if path else name
        more = inner.get("additionalProperties")
        if "$ref" in inner:
            yield from _options(schema, _referred(schema, inner), where)
        elif isinstance(more, dict) and (parts := more.get("oneOf", [more] if "$ref" in more else [])):
            for part in parts:  # several: the methods of image sets
                yield from _options(schema, _referred(schema, part), f"{where}.*")
        else:
            yield (f"{where}.*" if name == "override" else where), inner.get("default")
        for part in (part for one in inner.get("anyOf", ()) for part in one.get("oneOf", ())):  # orders, losses
            kind = _referred(schema, part)
            names = kind["properties"]["name"]
            for tag in names.get("enum", [names.get("const")]):
                below = {key: value for key, value in kind["properties"].items() if key != "name"}
                yield from _options(schema, kind | {"properties": below}, f"{where}[{tag}]")


def _referred(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    return dict(schema["$defs"][node["$ref"].rsplit("/", 1)[1]])


def _leaves(tree: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        where = f"{path}.{name}" if path else name
        if isinstance(value, dict):
            yield from _leaves(value, where)
        yield where, value
