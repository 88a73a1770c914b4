"""Runs tests in forks of a warm process: the libraries are imported once, the package anew in every fork."""

import contextlib
import ctypes
import importlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WARM = (
    *("numpy", "torch", "torch.nn.functional", "torchvision", "torchvision.transforms.v2", "torchvision.datasets"),
    *("pandas", "pyarrow", "pyarrow.parquet", "zarr", "zarrs", "numcodecs", "scipy.stats", "sklearn.datasets"),
    *("sklearn.manifold", "matplotlib.figure", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg"),
    *("matplotlib.backends.backend_pdf", "timm", "safetensors.torch", "pydantic", "yaml", "PIL.Image"),
    *("pytest", "hypothesis", "hypothesis.extra.numpy", "coverage", "snakemake.io", "pcodec", "torch.utils.data"),
)
LEFT_OUT = (".venv", ".git", ".snakemake", "__pycache__", "*.egg-info", ".*_cache", ".hypothesis")
MADE = ("results", "stores")  # at the top only
MEMORY = 10 * 2**30
LONGEST = 1800  # seconds; a test has its own limit
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Work:
    """Something to do in a fork: `child` gets the tree to work in and returns an exit code."""

    name: Any
    child: Callable[[Path], int]
    prepare: Callable[[Path], None] = lambda tree: None
    restore: Callable[[Path], None] = lambda tree: None


@dataclass(frozen=True)
class Ended:
    """How a fork ended: exit code, or minus the signal; the tail of its output."""

    work: Work
    tree: Path
    code: int
    seconds: float
    output: str


def warm_up() -> None:
    """Import what the package and its tests use, but neither of them."""
    os.environ["SLURM_CONF"] = "/dev/null"
    for name in WARM:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    import torch

    torch.set_num_threads(1)  # no parallel region has run: forks begin with an empty pool of threads
    assert "hald" not in sys.modules and "conftest" not in sys.modules, "the package has to be imported anew"  # noqa: PT018


def copy_tree(project: Path, target: Path) -> Path:
    """A copy of the project to work in; what is large is linked."""

    def copy(source: str, where: str) -> None:
        if os.path.getsize(source) > 2**20:
            os.symlink(source, where)
        else:
            shutil.copy2(source, where)

    def ignored(folder: str, names: list[str]) -> set[str]:
        made = MADE if Path(folder) == project else ()
        return {*shutil.ignore_patterns(*LEFT_OUT)(folder, names), *made}

    shutil.copytree(project, target, ignore=ignored, copy_function=copy, symlinks=True)
    return target


def run_forked(works: Iterable[Work], trees: list[Path]) -> Iterator[Ended]:
    """Do all works, one at a time in each tree; what is done comes as it ends."""
    waiting, free = iter(works), list(trees)
    running: dict[int, tuple[Work, Path, float]] = {}
    more = True
    try:
        while more or running:
            while more and free:
                work = next(waiting, None)
                more = work is not None
                if work:
                    tree = free.pop()
                    work.prepare(tree)
                    running[_fork(work, tree)] = (work, tree, time.monotonic())
            for pid in [pid for pid, (*_, start) in running.items() if time.monotonic() - start > LONGEST]:
                os.kill(pid, signal.SIGKILL)
            pid, status = os.waitpid(-1, os.WNOHANG) if running else (0, 0)
            if pid in running:
                work, tree, start = running.pop(pid)
                _clean(pid, tree)
                output = (tree.parent / f"{tree.name}.log").read_text(errors="replace")[-2000:]
                yield Ended(work, tree, os.waitstatus_to_exitcode(status), time.monotonic() - start, output)
                work.restore(tree)
                free.append(tree)
            else:
                time.sleep(0.02)
    finally:
        for pid, (_, tree, _) in running.items():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            _clean(pid, tree)


def scratch_of(tree: Path) -> Path:
    """Where the tests in a tree write."""
    return tree.parent / f"{tree.name}-scratch"


def options(tree: Path) -> list[str]:
    """How pytest is called in a fork."""
    quiet = [
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--tb=short",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ]
    return ["--rootdir", str(tree), "--basetemp", str(scratch_of(tree) / "t"), *quiet]


def _fork(work: Work, tree: Path) -> int:
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        log = os.open(tree.parent / f"{tree.name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        _enter(tree)
        code = work.child(tree)
        sys.stdout.flush()
    except BaseException as error:
        print(repr(error), flush=True)
    finally:
        os._exit(code)


def _enter(tree: Path) -> None:
    """Make the tree the place that the package and its tests come from."""
    scratch = scratch_of(tree)
    scratch.mkdir(exist_ok=True)
    os.chdir(tree)
    os.environ |= {"PYTHONPATH": str(tree / "src"), "TMPDIR": str(scratch)}
    tempfile.tempdir = None
    sys.path[:] = [str(tree / "src"), *(part for part in sys.path if not (Path(part or ".") / "hald").is_dir())]
    sys.argv[:] = ["pytest"]


def _clean(pid: int, tree: Path) -> None:
    """End what a fork has left behind, and remove what its tests wrote."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    scratch = scratch_of(tree)
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if str(scratch) in line]
    for place in reversed(mounted):
        subprocess.run(["umount", "-l", place], check=False)
    shutil.rmtree(scratch, ignore_errors=True)
