"""A real browser for tests: headless Chromium, driven through ChromeDriver's own protocol."""

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,1000",
]


def is_there() -> bool:
    """Whether this machine has Chromium and its driver."""
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


class Browser:
    """One window."""

    def __init__(self, address: str, profile: Path) -> None:
        options = {"binary": shutil.which("chromium"), "args": [*ARGUMENTS, f"--user-data-dir={profile}"]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self.address = address
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.address = f"{address}/session/{made['sessionId']}"

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, page: Path) -> None:
        """Open a file."""
        self._call("POST", "/url", {"url": page.resolve().as_uri()})

    def run(self, script: str) -> Any:
        """The value of some JavaScript."""
        return self._call("POST", "/execute/sync", {"script": script, "args": []})

    def wait(self, script: str, seconds: float = 20.0) -> Any:
        """The value of some JavaScript as soon as it is true."""
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < end, f"still false after {seconds:g} s: {script}\n{self.text()[:2000]}"
            time.sleep(0.1)
        return value

    def click(self, text: str) -> None:
        """Click on the innermost element with exactly this text, as soon as there is one."""
        find = (
            "const all = [...document.querySelectorAll('a, button, li, span, div')].filter("
            f"e => e.textContent.trim() === {json.dumps(text)} && e.offsetParent !== null);"
        )
        self.wait(find + "return all.length > 0")
        self.run(find + "const e = all[all.length - 1]; (e.closest('a, button') || e).click(); return true")

    def view(self, row: str) -> None:
        """Look at a result of Snakemake's report: the eye in the row that starts with this text."""
        find = (
            "const row = [...document.querySelectorAll('tr')].find("
            f"e => e.cells.length && e.cells[0].textContent.trim() === {json.dumps(row)});"
        )
        self.wait(find + "return Boolean(row)")
        self.run(find + "row.querySelector('[iconname=eye]').click(); return true")

    def text(self) -> str:
        """What can be read on the page."""
        return str(self.run("return document.body.innerText"))

    def errors(self) -> list[str]:
        """What the page complained about in its console."""
        return [
            entry["message"]
            for entry in self._call("POST", "/se/log", {"type": "browser"})
            if entry["level"] == "SEVERE"
        ]

    def picture(self, path: Path) -> None:
        """Keep what is seen as a PNG."""
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def close(self) -> None:
        self._call("DELETE", "")


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser that is gone afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 20
        while True:
            try:
                window = Browser(f"http://127.0.0.1:{port}", profile)
                break
            except OSError:
                assert time.monotonic() < end, "chromedriver does not answer"
                time.sleep(0.2)
        try:
            yield window
        finally:
            window.close()
    finally:
        driver.kill()
        driver.wait()
