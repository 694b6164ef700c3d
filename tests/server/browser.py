"""A real browser without a screen: Debian's chromium, by its driver's protocol (W3C WebDriver)."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.server.serving import free_ports
from tests.waiting import eventually

DRIVER = shutil.which("chromedriver")
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--window-size=1200,800",
)  # fmt: skip
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    def __init__(self, driver: str, profile: Path) -> None:
        self._driver = driver
        chrome = {"args": [*_OPTIONS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": chrome, "goog:loggingPrefs": {"browser": "ALL"}}
        answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{answer['sessionId']}"

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._driver + path, data, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def do(self, method: str, path: str, body: Any = None) -> Any:
        return self._call(method, self._session + path, body)

    def go(self, url: str) -> None:
        self.do("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """What the page's script returns."""
        return self.do("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def find(self, selector: str) -> str:
        found = self.do("POST", "/element", {"using": "css selector", "value": selector})
        return str(found[_ELEMENT])

    def type(self, selector: str, text: str) -> None:
        self.do("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def click(self, selector: str) -> None:
        self.do("POST", f"/element/{self.find(selector)}/click", {})

    def text(self, selector: str) -> str:
        return str(self.do("GET", f"/element/{self.find(selector)}/text"))

    def complaints(self) -> list[str]:
        """What the browser's console has against the page, such as what its security policy blocked."""
        return [
            line["message"] for line in self.do("POST", "/se/log", {"type": "browser"}) if line["level"] == "SEVERE"
        ]

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.do("GET", "/screenshot")))

    def close(self) -> None:
        self.do("DELETE", "")


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """A browser with an empty profile; needs chromium-driver."""
    assert DRIVER
    (port,) = free_ports(1)
    log = (folder / "chromedriver.log").open("wb")
    process = subprocess.Popen([DRIVER, f"--port={port}"], stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        assert eventually(lambda: _is_up(url))
        browser = Browser(url, folder / "profile")
        try:
            yield browser
        finally:
            browser.close()
    finally:
        process.terminate()
        process.wait(30)
        log.close()


def _is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/status", timeout=5) as response:
            return bool(json.load(response)["value"]["ready"])
    except OSError:
        return False
