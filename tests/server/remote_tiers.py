"""A router whose tiers are on other servers: all of them real, on addresses of 127.0.1.0/24, with the same ports."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from contextlib import ExitStack
from pathlib import Path

from bls.contract import LARGE, SMALL
from scripts.host import processes
from tests.server import echo_repository
from tests.server.serving import ROOT, Server, running_server

HOSTS = {"small-1": "127.0.1.1", "small-2": "127.0.1.2", "large": "127.0.1.3", "real": "127.0.1.4"}


class EngineServer:
    """`scripts/serve cpu --tier TIER` at an address of its own, started and ended as a test likes."""

    def __init__(self, folder: Path, repository: Path, host: str, ports: tuple[int, int, int], *flags: str) -> None:
        self.host = host
        self._folder = folder
        self._repository = repository
        http, grpc, metrics = ports
        self.endpoint = f"{host}:{grpc}"
        self._flags = (
            f"--host={host}",
            f"--http-port={http}",
            f"--grpc-port={grpc}",
            f"--metrics-port={metrics}",
            *flags,
        )
        self._stack = ExitStack()
        self.server: Server | None = None

    def start(self) -> Server:
        folder = self._folder / f"{self.host}-{time.monotonic_ns()}"
        folder.mkdir(parents=True)
        self.server = self._stack.enter_context(running_server(folder, self._repository, *self._flags))
        return self.server

    @property
    def running(self) -> Server:
        assert self.server is not None
        return self.server

    @property
    def pids(self) -> list[int]:
        """The whole of it: scripts/serve first, so that it repairs nothing."""
        return [self.running.supervisor_pid, *processes.tree(self.running.supervisor_pid)]

    def kill(self) -> None:
        """As a machine that loses its power, but for the connections, which end."""
        for pid in dict.fromkeys(self.pids):
            os.kill(pid, signal.SIGKILL)
        self.running.process.wait()
        self.close()

    def drain(self) -> int:
        """As Kubernetes ends a pod."""
        os.kill(self.running.supervisor_pid, signal.SIGTERM)
        return self.running.wait()

    def end(self) -> None:
        if self.server is not None:
            self.kill()

    def close(self) -> None:
        self._stack.close()
        self.server = None


def set_metrics_port(repository: Path, port: int, **parameters: str) -> None:
    for model in (SMALL, LARGE):
        config = repository / model / "configs" / "remote.pbtxt"
        text = config.read_text()
        for key, value in {"metrics_port": str(port), **parameters}.items():
            text, found = re.subn(rf'(key: "{key}" value {{ string_value: ")[^"]*', rf"\g<1>{value}", text)
            assert found == 1, key
        config.write_text(text)


def router_repository(folder: Path, metrics_port: int, routers: int, **parameters: str) -> Path:
    """The router and what it needs, with tiers that are elsewhere and have these parameters."""
    repository = echo_repository.make(folder, routers=routers)
    for model in (SMALL, LARGE):
        shutil.rmtree(repository / model)
        shutil.copytree(ROOT / "model_repository" / model, repository / model)
    set_metrics_port(repository, metrics_port, **parameters)
    return repository
