"""Starts scripts/serve as a person would, on free ports, and stops it: for benchmarks and tests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bls.paths import ROOT
from scripts.server import control_key
from scripts.server.model_control import ModelControl

START_S = 170  # models of several hundred MB on two busy cores
STOP_S = 60


class StartFailed(Exception):
    """The server did not start; the message ends with what it printed."""


@dataclass(frozen=True)
class Server:
    """A running server. `grpc_url` is host:port, as tritonclient wants it; `metrics_url` has its path."""

    http_url: str
    grpc_url: str
    metrics_url: str
    supervisor_pid: int
    server_pid: int
    log: Path
    repository: Path
    control_key_file: Path | None
    left_out: str
    console: Path
    process: subprocess.Popen[bytes]

    @property
    def control(self) -> ModelControl:
        """What loads and unloads its models."""
        address = urlsplit(self.http_url)
        key = control_key.read(self.control_key_file) if self.control_key_file else None
        return ModelControl(address.hostname or "", address.port or 80, key)

    def wait(self, timeout_s: float = STOP_S) -> int:
        """The exit status of scripts/serve."""
        return self.process.wait(timeout_s)


@dataclass(frozen=True)
class Launch:
    """A scripts/serve that was started, ready or not: its process, its --ready-file, what it prints."""

    process: subprocess.Popen[bytes]
    ready: Path
    console: Path
    http_port: int

    def wait(self, timeout_s: float = STOP_S) -> int:
        """The exit status of scripts/serve."""
        return self.process.wait(timeout_s)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at this moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in sockets]


@contextmanager
def launched(
    folder: Path,
    repository: Path,
    *flags: str,
    target: str = "cpu",
    env: Mapping[str, str] | None = None,
    checkout: Path = ROOT,
) -> Iterator[Launch]:
    """Starts scripts/serve with its files in `folder`, without waiting for anything; stops it at the end."""
    http_port, grpc_port, metrics_port = free_ports(3)
    ready, console = folder / "ready.json", folder / "console.txt"
    command = [
        str(checkout / "scripts" / "serve"),
        target,
        f"--http-port={http_port}",
        f"--grpc-port={grpc_port}",
        f"--metrics-port={metrics_port}",
        f"--model-repository={repository}",
        f"--log={folder / 'tritonserver.log'}",
        f"--ready-file={ready}",
        *([] if any(flag.startswith("--gateway-port") for flag in flags) else ["--no-gateway"]),
        *flags,
    ]
    with console.open("wb") as output:
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield Launch(process, ready, console, http_port)
    finally:
        _stop(process)


@contextmanager
def running_server(
    folder: Path,
    repository: Path = ROOT / "model_repository",
    *flags: str,
    target: str = "cpu",
    env: Mapping[str, str] | None = None,
    checkout: Path = ROOT,
) -> Iterator[Server]:
    """The same, but yields once the server is ready. Raises StartFailed if that doesn't happen."""
    with launched(folder, repository, *flags, target=target, env=env, checkout=checkout) as launch:
        state = _wait_until_ready(launch)
        for name in ("log", "repository", "control_key_file"):
            state[name] = state[name] and Path(state[name])
        yield Server(**state, console=launch.console, process=launch.process)


def _wait_until_ready(launch: Launch) -> dict[str, Any]:
    end = time.monotonic() + START_S
    while not launch.ready.exists():
        status = launch.process.poll()
        if status is not None or time.monotonic() > end:
            raise StartFailed(f"the server did not start (exit status {status}):\n{launch.console.read_text()}")
        time.sleep(0.1)
    state: dict[str, Any] = json.loads(launch.ready.read_text())
    return state


def _stop(process: subprocess.Popen[bytes]) -> None:
    """As ctrl-C would; twice if requests in flight keep it."""
    for patience_s in (STOP_S, STOP_S):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                continue
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
