"""Envoy, HAProxy and nginx as deploy/balancers/ configures them, but for the addresses, in front of pods."""

from __future__ import annotations

import http.client
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bls.paths import ROOT
from tests.balancers.pods import Pod
from tests.server.serving import free_ports
from tests.waiting import eventually

FOLDER = ROOT / "deploy" / "balancers"
CONFIGS = {"envoy": "envoy.yaml", "haproxy": "haproxy.cfg", "nginx": "nginx.conf"}
SHIPPED_PODS = ("10.0.0.11", "10.0.0.12")
SHIPPED_PORTS = {"9000": "gateway", "8001": "grpc", "8003": "ready"}
OPENAI, GRPC = "8080", "8081"
GET_THEM = "scripts/install --dev brings Envoy; `apt-get install haproxy nginx` the others"


@dataclass
class Balancer:
    """A running one; `openai` and `grpc` are its ports on 127.0.0.1."""

    name: str
    openai: int
    grpc: int

    @property
    def grpc_url(self) -> str:
        return f"127.0.0.1:{self.grpc}"

    def reaches(self, pod: Pod) -> bool:
        """Whether it comes to send requests to this pod: a path that nobody else asks for tells."""
        before = pod.pings
        return eventually(lambda: is_ready(self.openai, path="/ping") and pod.pings > before, 60)


def program(name: str) -> str:
    """Its path. Fails the test where it is missing, and says how to get it."""
    beside = Path(sys.executable).parent / name
    found = (
        str(beside) if beside.exists() else shutil.which(name, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin")
    )
    assert found, f"there is no {name}: {GET_THEM}"
    return found


def config_of(name: str, pods: Sequence[Pod], ports: dict[str, int]) -> str:
    """What is shipped, with the addresses of these pods."""
    text = (FOLDER / CONFIGS[name]).read_text()
    for shipped, pod in zip(SHIPPED_PODS, pods, strict=True):
        assert shipped in text
        text = text.replace(shipped, pod.host)
    numbers = {**{shipped: pods[0].ports[port] for shipped, port in SHIPPED_PORTS.items()}, **ports}
    number = re.compile(rf"(?<=[:\s])(?:{'|'.join(numbers)})(?=[\s;\"}}]|$)")
    lines = [
        line if line.lstrip().startswith("#") else number.sub(lambda found: str(numbers[found[0]]), line)
        for line in text.splitlines()
    ]
    here = {"0.0.0.0": "127.0.0.1", "bind :": "bind 127.0.0.1:", "listen ": "listen 127.0.0.1:"}
    text = "\n".join(lines) + "\n"
    for shipped, ours in here.items():
        text = text.replace(shipped, ours)
    return text


def command_of(name: str, config: Path) -> list[str]:
    if name == "envoy":
        return [program(name), "-c", str(config), "--disable-hot-restart", "--concurrency", "1", "--log-level", "warn"]
    if name == "haproxy":
        return [program(name), "-db", "-f", str(config)]
    return [
        program(name),
        "-p",
        str(config.parent),
        "-e",
        "stderr",
        "-c",
        str(config),
        "-g",
        "daemon off; pid nginx.pid;",
    ]


@contextmanager
def running(name: str, folder: Path, pods: Sequence[Pod]) -> Iterator[Balancer]:
    """In front of the pods, once it lets a request through."""
    openai, grpc = free_ports(2)
    own = folder / name
    own.mkdir()
    text = config_of(name, pods, {OPENAI: openai, GRPC: grpc})
    with started(name, own / CONFIGS[name], text, openai):
        balancer = Balancer(name, openai, grpc)
        for pod in pods:
            assert balancer.reaches(pod)
        yield balancer


@contextmanager
def started(name: str, config: Path, text: str, port: int) -> Iterator[None]:
    """The program with that configuration, once /ready says yes at `port`; what it prints is beside the file."""
    config.write_text(text)
    log = config.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(command_of(name, config), cwd=config.parent, stdout=output, stderr=output)
    try:
        ready = eventually(lambda: process.poll() is not None or is_ready(port), 60)
        assert ready and process.poll() is None, log.read_text()
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def is_ready(port: int, host: str = "127.0.0.1", path: str = "/ready") -> bool:
    """Whether /ready says yes there."""
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
