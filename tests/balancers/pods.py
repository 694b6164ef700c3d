"""Servers on loopback addresses of their own, as pods are on theirs: with gateway, keys, ready port and admin door."""

from __future__ import annotations

import os
import re
import signal
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bls.routing.policy_file import VARIABLE
from gateway.keys import new_key
from scripts.host import processes
from tests.balancers import knobs
from tests.gateway.gateway_process import ask
from tests.server import echo_repository
from tests.server.clients import metric
from tests.server.serving import Server, running_server
from tests.waiting import eventually

SECRET, DIGEST = new_key()
PORTS = ("http", "grpc", "metrics", "ready", "gateway", "admin")
MODEL = (
    '"""An engine of tests/balancers/pod_engine.py."""\n\nfrom tests.balancers.pod_engine import TritonPythonModel\n'
)


def make_repository(folder: Path, routers: int) -> Path:
    """As tests/server/echo_repository.py makes it, with engines whose knobs can be turned."""
    repository = echo_repository.make(folder, routers=routers)
    for model in (echo_repository.SMALL, echo_repository.LARGE):
        (repository / model / "1" / "model.py").write_text(MODEL)
    return repository


@dataclass
class Pod:
    """A scripts/serve on `host`, with ports that all pods have in common. `start` and `stop` as often as needed."""

    host: str
    ports: dict[str, int]
    folder: Path
    repository: Path
    flags: tuple[str, ...] = ()
    server: Server | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def start(self) -> None:
        keys = self.folder / "keys.txt"
        keys.write_text(f"tests {DIGEST}\n")
        flags = [f"--{name}-port={self.ports[name]}" for name in ("http", "grpc", "metrics", "ready", "gateway")]
        flags += [f"--host={self.host}", f"--gateway-keys={keys}", "--gateway-open-metrics"]
        flags += [f"--gateway-admin={self.host}:{self.ports['admin']}", *self.flags]
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=self.folder))
        policy = self.folder / "policy.py"
        policy.write_text(Path(os.environ[VARIABLE]).read_text() + echo_repository.UNLIMITED)
        env = {**os.environ, VARIABLE: str(policy)}
        self.server = self._stack.enter_context(running_server(folder, self.repository, *flags, env=env))

    def stop(self) -> int:
        """As an orchestrator does; the exit status."""
        assert self.server
        self.server.process.send_signal(signal.SIGTERM)
        status = self.server.wait(120)
        self._stack.close()
        return status

    @property
    def pid(self) -> int:
        """Of its scripts/serve."""
        assert self.server
        return self.server.supervisor_pid

    def kill(self) -> None:
        """As a machine that loses its power, but for the connections, which have ended on return."""
        pids = processes.tree(self.pid)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: not any(map(_lives, pids)), 60)
        self._stack.close()

    def close(self) -> None:
        self._stack.close()

    def turn(self, **turned: float) -> None:
        """Knobs of its engines, as tests/balancers/knobs.py has them."""
        knobs.turn(self.repository.parent, **turned)

    def count(self, what: str) -> float:
        """Requests that its engines have "started" or "stopped"."""
        return metric(self.server, f"echo_engine_{what}_total")

    @property
    def in_flight(self) -> float:
        return metric(self.server, "llm_router_requests_in_flight")

    @property
    def pings(self) -> int:
        """How often its gateway was asked for /ping."""
        reply = ask(self.ports["gateway"], "GET", "/metrics", None, {}, self.host)
        found = re.search(r'^llm_gateway_requests_total{path="/ping",status="200"} (\d+)', reply.text, re.MULTILINE)
        return int(found[1]) if found else 0

    @property
    def said(self) -> str:
        assert self.server
        return self.server.console.read_text()


def _lives(pid: int) -> bool:
    """Not if it is only waited for: its connections are closed by then."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@contextmanager
def running_pods(folder: Path, hosts: Sequence[str], routers: int, *flags: str) -> Iterator[list[Pod]]:
    """They share a policy that turns nobody away."""
    ports = dict(zip(PORTS, free_on_all(hosts, len(PORTS)), strict=True))
    with ExitStack() as stack:
        pods = []
        for host in hosts:
            own = folder / host
            own.mkdir()
            pods.append(Pod(host, ports, own, make_repository(own, routers), flags))
            stack.callback(pods[-1].close)
        for pod in pods:
            pod.start()
        yield pods


def free_on_all(hosts: Sequence[str], count: int) -> list[int]:
    """Ports that nobody listens on, on any of the addresses."""
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            first = stack.enter_context(socket.create_server((hosts[0], 0)))
            port = int(first.getsockname()[1])
            with suppress(OSError):
                for host in (*hosts[1:], "127.0.0.1"):
                    stack.enter_context(socket.create_server((host, port)))
                found.append(port)
    return found
