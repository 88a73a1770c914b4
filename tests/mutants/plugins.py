"""What pytest is told inside a fork: which tests in which order, and under which name a line was run."""

import contextlib
import functools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


def steady() -> None:
    """Property tests draw the same examples in every run."""
    from hypothesis import settings

    settings.register_profile("mutants", derandomize=True, database=None, deadline=None, print_blob=False)
    settings.load_profile("mutants")


class Chosen:
    """Runs the given tests in the given order; the first failure ends the process."""

    def __init__(self, limits: dict[str, float], report: Path) -> None:
        self.limits, self.report, self.ran, self.now = limits, report, 0, ""

    def pytest_configure(self) -> None:
        steady()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        there = {item.nodeid: item for item in items}
        items[:] = [there[name] for name in self.limits if name in there]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.now = item.nodeid
        self.write("time")  # what stands there when the alarm ends this process
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, self.limits[item.nodeid])
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.ran += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.write("failed", str(report.longrepr)[-1500:])
            os._exit(1)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.now = report.nodeid
            self.write("import", str(report.longrepr)[-1500:])
            os._exit(1)

    def write(self, how: str, words: str = "") -> None:
        self.report.write_text(json.dumps({"how": how, "test": self.now, "ran": self.ran, "words": words}))


class Traced:
    """Notes for every line of the package the tests, fixtures and cached functions that ran it.

    What a fixture of a wider scope or a cached function does is done once, and belongs to all tests that use it.
    """

    def __init__(self, switch: Callable[[str], None]) -> None:
        self.switch, self.stack = switch, [""]
        self.tests: dict[str, dict[str, Any]] = {}
        self.failed: dict[str, str] = {}
        self.users: dict[str, set[str]] = {}  # fixture or cached function: the tests and others that use it

    @contextlib.contextmanager
    def inside(self, name: str) -> Iterator[None]:
        self.stack.append(name)
        self.switch(name)
        try:
            yield
        finally:
            self.stack.pop()
            self.switch(self.stack[-1])

    def pytest_configure(self) -> None:
        steady()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        slow = item.get_closest_marker("slow") is not None
        self.tests[item.nodeid] = {"slow": slow, "seconds": 0.0, "whole": 0.0, "skipped": False}
        os.environ["MUTANTS_TEST"] = item.nodeid
        start = time.monotonic()
        with self.inside(item.nodeid):
            try:
                return (yield)
            finally:
                self.tests[item.nodeid]["whole"] = time.monotonic() - start
                for name in {*getattr(item, "fixturenames", ()), *self.dynamic(item)}:
                    self.users.setdefault(f"fixture {name}", set()).add(item.nodeid)

    @staticmethod
    def dynamic(item: pytest.Item) -> set[str]:
        """Fixtures that a test asked for while it ran."""
        return set(getattr(getattr(item, "_request", None), "_fixture_defs", {}))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        name = f"fixture {fixturedef.argname}"
        for outer in self.stack:
            if outer.startswith("fixture "):
                self.users.setdefault(name, set()).add(outer)
        with self.inside(name):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.tests[report.nodeid]["seconds"] = report.duration
        if report.skipped:
            self.tests[report.nodeid]["skipped"] = True
        if report.failed:
            self.failed[report.nodeid] = str(report.longrepr)[-1500:]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed[report.nodeid] = str(report.longrepr)[-1500:]

    def cached(self, real: Callable[..., Any], folder: str) -> Callable[..., Any]:
        """`functools.lru_cache` that notes who uses a function below `folder`."""

        def lru_cache(maxsize: Any = 128, typed: bool = False) -> Any:
            if callable(maxsize):
                return wrap(maxsize, real)
            return functools.partial(wrap, keep=real(maxsize, typed))

        def wrap(function: Callable[..., Any], keep: Callable[..., Any]) -> Any:
            code = getattr(function, "__code__", None)
            if code is None or not code.co_filename.startswith(folder):
                return keep(function)
            name = f"cached {function.__module__}.{function.__qualname__}"

            def body(*args: Any, **named: Any) -> Any:
                with self.inside(name):
                    return function(*args, **named)

            kept = keep(body)

            @functools.wraps(function)
            def call(*args: Any, **named: Any) -> Any:
                self.users.setdefault(name, set()).add(self.stack[-1])
                return kept(*args, **named)

            call.cache_clear, call.cache_info = kept.cache_clear, kept.cache_info  # type: ignore[attr-defined]
            return call

        return lru_cache
