"""Processes that die by SIGKILL at a chosen point. They are forked from a server that has torch imported already."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "torch",
        "conftest",
        "hald.labels.relabel",
        "hald.squeeze.train",
        "hald.synthesis.optimiser.teachers",
        "hald.evaluation.train",
    ]
)


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def deadly(function: Callable[..., Any], number: int, after: bool = False) -> Callable[..., Any]:
    """`function`, but its n-th call kills the process (before doing anything, or just after)."""
    calls = [0]

    def wrapped(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == number and not after:
            die()
        result = function(*arguments, **options)
        if calls[0] == number:
            die()
        return result

    return wrapped


def relabel_job(images: Path, teacher: Path, store: Path, phase: str, number: int, views: range) -> None:
    """A relabel job; `phase` says where it dies."""
    import torch

    import conftest
    import hald.labels.store as module
    from hald.labels.store import LabelStore

    torch.set_num_threads(1)
    if phase == "write":  # between the files of a view
        LabelStore.file = deadly(LabelStore.file, number)  # type: ignore[method-assign]
    elif phase == "rename":  # while a file of an array, or the whole store, is put into place
        os.replace = deadly(os.replace, number)
        Path.rename = Path.replace = deadly(Path.rename, number)  # type: ignore[assignment, method-assign]
    elif phase in ("marker", "marked"):
        module.write_json = deadly(module.write_json, number, after=phase == "marked")
    elif phase == "time":
        threading.Timer(number / 1000, die).start()
    conftest.make_labels(conftest.labels_spec(), images, [teacher], store, views)


def start(function: Callable[..., None], *arguments: Any) -> ForkServerProcess:
    process = CONTEXT.Process(target=function, args=arguments)
    process.start()
    return process


def finish(process: ForkServerProcess) -> int:
    process.join(120)
    assert process.exitcode is not None, "a process hangs"
    return process.exitcode
