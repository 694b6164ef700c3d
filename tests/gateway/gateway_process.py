"""A gateway as its command starts it, in a process of its own, and a small HTTP client for it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.waiting import eventually

ROOT = Path(__file__).resolve().parent.parent.parent
DEADLINE_S = 60


@dataclass
class Gateway:
    """`log` is what it printed."""

    port: int
    process: subprocess.Popen[bytes]
    log_file: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def get(self, path: str, **headers: str) -> Reply:
        return ask(self.port, "GET", path, None, headers)

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        return ask(self.port, "POST", path, body, headers)

    def chat(self, text: str = "one two three", **fields: Any) -> Reply:
        """A chat completion with one message."""
        body = {"model": "auto", "messages": [{"role": "user", "content": text}], "max_tokens": 50, **fields}
        return self.post("/v1/chat/completions", {name: value for name, value in body.items() if value is not None})

    def complete(self, prompt: Any = "one two three", **fields: Any) -> Reply:
        body = {"model": "auto", "prompt": prompt, "max_tokens": 50, **fields}
        return self.post("/v1/completions", {name: value for name, value in body.items() if value is not None})

    def metric(self, name: str, **labels: str) -> float:
        """The sum over the series of that name that have these labels."""
        total = 0.0
        for line in self.get("/metrics").text.splitlines():
            if found := re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line):
                given = dict(re.findall(r'(\w+)="([^"]*)"', found[1] or ""))
                total += float(found[2]) if labels.items() <= given.items() else 0
        return total

    def is_idle(self) -> bool:
        return self.metric("llm_gateway_in_flight") == 0


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def events(self) -> list[Any]:
        """The JSON of each event, and "[DONE]"."""
        return [event if event == "[DONE]" else json.loads(event) for event in events_of(self.text)]


def events_of(text: str) -> list[str]:
    """What is behind each `data: `; the text may begin in the middle of an event."""
    blocks = (block.strip("\n") for block in text.split("\n\n"))
    return [block.removeprefix("data: ") for block in blocks if block.startswith("data: ")]


def ask(port: int, method: str, path: str, body: Any, headers: Mapping[str, str], host: str = "127.0.0.1") -> Reply:
    connection = http.client.HTTPConnection(host, port, timeout=DEADLINE_S)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        given.setdefault("content-type", "application/json")
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request(method, path, body, given)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, found, response.read().decode())
    finally:
        connection.close()


@contextmanager
def opened(port: int, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A response whose body the block reads as it comes; leaving closes the connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json", **(headers or {})})
        response = connection.getresponse()
        try:
            yield response
        finally:
            response.close()
    finally:
        connection.close()


@contextmanager
def running(folder: Path, target: str, *flags: str) -> Iterator[Gateway]:
    """A gateway in front of that Triton, on a free port; stopped at the end, by force if it must be."""
    log = folder / f"gateway-{len(list(folder.glob('gateway-*')))}.log"
    command = [sys.executable, "-m", "scripts.gateway", f"--triton={target}", "--port=0"]
    if not any(flag.startswith("--triton-metrics") for flag in flags):
        command.append("--triton-metrics=none")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *flags], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=output, stderr=output
        )
    try:
        assert eventually(lambda: "listening on" in log.read_text() or process.poll() is not None, DEADLINE_S)
        found = re.search(r"listening on http://.*:(\d+)", log.read_text())
        assert found, log.read_text()
        yield Gateway(int(found[1]), process, log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
