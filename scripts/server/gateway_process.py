"""The gateway beside a server that scripts/serve runs: its options, its process, which is started again if it dies."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from ipaddress import ip_address
from pathlib import Path

from bls.contract import ROUTER
from bls.paths import ROOT
from scripts import drain_gateway
from scripts.host import children, preflight
from scripts.host.preflight import Refused
from scripts.server.server_options import flag_value, grpc_tls_flag, is_off

LACKS_PYTHON = "python3 lacks packages of the gateway: pip install --no-deps -r requirements-gateway.txt"
FROM_HTTP_PORT = 1000  # the gateway's port is so much higher, if it isn't told
LOOPBACK = "127.0.0.1"
KEYS = ROOT / "keys.txt"
PYTHON = ROOT / ".venv" / "bin" / "python"  # that of the set-up: the first scripts/serve runs on the system's
# What the gateway imports. NVIDIA's image, in which GPUs are served, need not have all of it.
PACKAGES = ("google.protobuf", "grpc", "httptools", "msgspec", "uvicorn", "uvloop")
_LACKS = "import sys; from importlib.util import find_spec as f; sys.exit(not all(map(f, sys.argv[1:])))"
_AGAIN_S, _LONGEST_AGAIN_S = 1.0, 30.0  # between two starts of a gateway that dies, the more often the longer
MAX_WORKERS = 64  # as scripts/gateway has it
_WELL_S = 60.0  # a gateway that ran so long counts as a new one
_ASK_S = 0.5
_MORE_S = 5.0  # beyond the drain, before a gateway that doesn't end is killed


def add_to(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("gateway, which speaks OpenAI's API")
    group.add_argument("--gateway-port", type=int, metavar="N", help="9000, or --http-port + 1000")
    group.add_argument("--gateway-workers", type=int, default=1, metavar="N", help="its processes (1)")
    group.add_argument(
        "--gateway-admin", metavar="[HOST:]PORT", help="take POST /drain there, on this machine if no HOST is told"
    )
    group.add_argument("--gateway-open-metrics", action="store_true", help="its /metrics without a key")
    group.add_argument("--no-gateway", action="store_true", help="Triton's own ports alone")
    group.add_argument(
        "--gateway-keys", type=Path, metavar="FILE", help="made by scripts/keys (keys.txt, if it's there)"
    )
    group.add_argument(
        "--open-triton", action="store_true", help="Triton's ports on --host too, not on this machine alone"
    )


def tritons_host(options: argparse.Namespace, models: Sequence[str]) -> str:
    """Where Triton listens: beside a gateway on this machine alone, unless its ports are to be open too."""
    host = str(options.host)
    return host if options.open_triton or not _is_wanted(options, models) else _near(host)


def _near(host: str) -> str:
    """The address itself if only this machine can reach it, else one of that kind."""
    return host if _is_near(host) else "::1" if ":" in host else LOOPBACK


def _is_near(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _is_wanted(options: argparse.Namespace, models: Sequence[str]) -> bool:
    return not options.no_gateway and ROUTER in models and _python(options.target) is not None


@cache
def _python(target: str) -> Path | None:
    """The Python that runs the gateway; None where none has its packages. On a CPU the set-up sees to that."""
    if target == "cpu":
        return PYTHON
    return next((path for path in (PYTHON, Path(sys.executable)) if _has_packages(path)), None)


def _has_packages(python: Path) -> bool:
    try:
        return subprocess.run([python, "-c", _LACKS, *PACKAGES], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def _admin(options: argparse.Namespace) -> tuple[str, int] | None:
    if options.gateway_admin is None:
        return None
    try:
        return drain_gateway.address(options.gateway_admin)
    except ValueError:
        raise Refused(f"--gateway-admin must be PORT or HOST:PORT, not {options.gateway_admin!r}") from None


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Gateway:
    """How the gateway of one server is started; `is_wanted` says whether there is one."""

    def __init__(self, options: argparse.Namespace, models: Sequence[str]) -> None:
        self.is_wanted = _is_wanted(options, models)
        self._lacks_python = not options.no_gateway and ROUTER in models and not self.is_wanted
        self._is_asked_for = options.gateway_port is not None or options.gateway_keys is not None
        self._python = str(_python(options.target))
        self.port: int = options.gateway_port or options.http_port + FROM_HTTP_PORT
        self.keys: Path | None = options.gateway_keys or (KEYS if KEYS.exists() else None)
        # Without keys anyone could ask, so only this machine may.
        self.host: str = options.host if self.keys or _is_near(options.host) else LOOPBACK
        triton = _near(options.host)  # which an address of all kinds takes too
        triton = f"[{triton}]" if ":" in triton else triton
        self._grpc = f"{triton}:{options.grpc_port}"
        self._metrics = f"http://{triton}:{options.metrics_port}/metrics"
        self._workers: int = options.gateway_workers
        self._drain_s: int = options.drain_seconds
        self._lame_duck_s: float = options.lame_duck_s
        self._has_open_metrics: bool = options.gateway_open_metrics
        self._admin = _admin(options)
        has_no_grpc = is_off(flag_value(options.server_flags, "--allow-grpc"))
        self._cannot_ask = "--allow-grpc=false" if has_no_grpc else grpc_tls_flag(options.server_flags)

    @property
    def url(self) -> str:
        return f"http://{self.host if _is_near(self.host) else LOOPBACK}:{self.port}"

    def check(self) -> None:
        """Raises Refused if it could not run."""
        if self._lacks_python and self._is_asked_for:
            raise Refused(f"{LACKS_PYTHON} (or leave the gateway out with --no-gateway)")
        if not 1 <= self._workers <= MAX_WORKERS:
            raise Refused(f"--gateway-workers must be 1 to {MAX_WORKERS}")
        if self.is_wanted and self._cannot_ask:
            raise Refused(f"{self._cannot_ask}: the gateway asks Triton over gRPC without TLS; add --no-gateway")
        if self.is_wanted:
            preflight.check_ports(self.host, {"--gateway-port": self.port})
            if self._admin:
                preflight.check_ports(self._admin[0], {"--gateway-admin": self._admin[1]})
            if self.keys and not self.keys.is_file():
                raise Refused(f"there is no {self.keys}: scripts/keys add NAME makes it")

    def command(self) -> list[str]:
        words = [self._python, "-m", "scripts.gateway", f"--triton={self._grpc}", f"--triton-metrics={self._metrics}"]
        words += [f"--host={self.host}", f"--port={self.port}", f"--drain-s={max(self._drain_s, 1)}"]
        words += [f"--lame-duck-s={self._lame_duck_s}"] if self._lame_duck_s else []
        words += [f"--admin={_joined(*self._admin)}"] if self._admin else []
        words += ["--open-metrics"] if self._has_open_metrics else []
        words += [f"--workers={self._workers}"] if self._workers != 1 else []
        words += [f"--ledger={ROOT / 'logs' / 'usage'}"]
        return words + ([f"--keys={self.keys}"] if self.keys else [])

    def summary(self, question: str) -> list[str]:
        """What a person wants to know of it once the server is ready."""
        if not self.is_wanted:
            return [f"  OpenAI   no gateway: {LACKS_PYTHON}"] if self._lacks_python else []
        key = '"the key that scripts/keys printed"' if self.keys else '"none"'
        asked = f'[{{"role": "user", "content": "{question}"}}]'
        return [
            f"  OpenAI   {self.url}/v1   (a page to look at: {self.url}/)",
            "try it from Python, with pip install openai",
            "  from openai import OpenAI",
            f'  client = OpenAI(base_url="{self.url}/v1", api_key={key})',
            f'  print(client.chat.completions.create(model="auto", messages={asked}).choices[0].message.content)',
        ]

    @contextmanager
    def running(self, variables: Mapping[str, str], log: Path, say: Callable[[str], None]) -> Iterator[Process]:
        """It runs as long as the block; without one that is wanted, nothing does. `say` is told when it dies."""
        command = self.command() if self.is_wanted else []
        patience_s = self._lame_duck_s + self._drain_s + _MORE_S
        process = Process(command, variables, log, patience_s, say, self._admin)
        process.start()
        try:
            yield process
        finally:
            process.drain()


class Process:
    """`drain` ends it: answers that run are sent to their end first."""

    def __init__(
        self,
        command: list[str],
        variables: Mapping[str, str],
        log: Path,
        patience_s: float,
        say: Callable[[str], None] = print,
        admin: tuple[str, int] | None = None,
    ) -> None:
        self._command = command
        self._variables = variables
        self._log = log
        self._patience_s = patience_s
        self._say = say
        self._admin = admin
        self.has_cut_off = False  # whether it ended before its answers did
        self._is_ending = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    def start(self) -> None:
        if self._command:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            self._keeper.start()

    def end(self) -> None:
        """Tells it to end once its answers have; told again, it ends at once."""
        self._is_ending.set()
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def drains(self) -> bool:
        """Whether its admin door was told so. One that doesn't answer may be about to be started."""
        if self._admin is None:
            return False
        try:
            return bool(drain_gateway.ask(self._admin, "GET", "/drain", _ASK_S)["draining"])
        except Refused:
            return False

    @property
    def has_ended(self) -> bool:
        return not self._keeper.is_alive()

    def drain(self) -> None:
        """The same, and waits for it. Does nothing if it has ended."""
        if not self._is_ending.is_set():
            self.end()
        if self._process is not None:
            try:
                self._process.wait(self._patience_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        if self._keeper.is_alive():
            self._keeper.join(self._patience_s)

    def _keep(self) -> None:
        pause = _AGAIN_S
        while not self._is_ending.is_set():
            began = time.monotonic()
            with self._log.open("ab") as output:
                self._process = children.start(self._command, self._variables, ROOT, output)
            if self._is_ending.is_set():
                self._process.send_signal(signal.SIGTERM)
            status = self._process.wait()
            if self._is_ending.is_set():
                self.has_cut_off = status != 0
                return
            pause = _AGAIN_S if time.monotonic() - began > _WELL_S else pause
            self._say(f"error: the gateway ended with status {status}, the next start is in {pause:.0f} s: {self._log}")
            self._is_ending.wait(pause)
            pause = min(2 * pause, _LONGEST_AGAIN_S)
