"""Run `hald bless` of copies of the project, each call in a fork that has other people's libraries already.

A line of standard input is a call: {"folder": …, "words": […], "case": the only golden case to run, or null}.
A line of standard output is its answer: [exit code, what it said].
"""

import contextlib
import importlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

LIBRARIES = (
    *("torch", "torchvision.datasets", "torchvision.transforms.functional", "timm", "zarr", "numcodecs", "pcodec"),
    *(
        "safetensors.torch",
        "sklearn.datasets",
        "PIL.Image",
        "pytest",
        "yaml",
        "coverage",
        "pydantic",
        "pyarrow.parquet",
    ),
)


def call(folder: str, words: list[str], case: str | None) -> tuple[int, str]:
    """One call, with the copy's own source."""
    sys.path[:0] = [f"{folder}/src", f"{folder}/tests"]
    os.chdir(folder)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        if case:
            known = importlib.import_module("hald.cli.bless")._cases().CASES
            for name in known.keys() - {case}:
                del known[name]
        code = importlib.import_module("hald.cli.main").main(["bless", *words])
    return code, said.getvalue()


def in_a_fork(request: dict[str, Any]) -> str:
    """The answer to a call."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        try:
            answer = call(**request)
        except BaseException as error:
            answer = (-1, repr(error))
        Path(f"/dev/fd/{writer}").write_text(json.dumps(answer))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    return answer or json.dumps([-1, "it died"])


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.path = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).parent]
    for library in LIBRARIES:
        importlib.import_module(library)
    importlib.import_module("torch").set_num_threads(1)
    for line in sys.stdin:
        print(in_a_fork(json.loads(line)), flush=True)
