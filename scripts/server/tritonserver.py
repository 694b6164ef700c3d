"""One tritonserver process: its command line, whether it is ready, and its end, after which nothing of it is left."""

from __future__ import annotations

import http.client
import os
import shlex
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bls.routing import table_layout
from engines.remote.settings import VARIABLE as REMOTE_VARIABLE
from scripts.host import children, hidden_arguments, processes, shared_memory
from scripts.server import control_key
from scripts.server.control_key import ControlKey
from scripts.server.server_options import flag_names, flag_value, grpc_tls_flag, is_off

RESCAN_S = 30.0
PRIVATE_S = 0.5  # how often files of shared memory that others may read are looked for
# Has Triton load a model's instances one after the other, not all at once. An instance whose process gets no core for a
# second counts as dead, and while it loads that aborts tritonserver 2.51: this is for machines that are so full.
ONE_BY_ONE = ("TRITON_PARALLEL_INSTANCE_LOADING", "0")
# A gRPC client opens another connection when its own is so old: a changeover waits for that, and a server that is new
# among the addresses of a name is found.
CONNECTION_AGE, CONNECTION_AGE_MS = "--grpc-max-connection-age", 30_000
SHM_FLAG = "--backend-config=python,shm-region-prefix-name="
ENGINE_KEY_VARIABLE = "LLM_ROUTER_INTERNAL_KEY"  # for bls/triton_io.py
SHM_VARIABLE = "LLM_ROUTER_SHM_PREFIX"  # for the table of bls/routing/service.py; marks a server's processes, too


@dataclass(frozen=True)
class Settings:
    """What scripts/serve decides about a server. `extra` goes to tritonserver and wins over the defaults."""

    repository: Path
    models: tuple[str, ...]
    config_name: str | None
    host: str
    http_port: int
    grpc_port: int
    metrics_port: int
    drain_s: int  # that requests in flight have to end
    log: Path
    extra: tuple[str, ...]
    lame_duck_s: float = 0.0  # before it, in which /ready says no and new requests are answered
    ready_port: int | None = None  # of scripts/server/readiness_server.py, where it is wanted
    metrics_host: str | None = None  # where tritonserver's own metrics are, if not at `host`
    pages_host: str | None = None  # where scripts/serve itself shows readiness and metrics, if not at `host`
    shares_ports: bool = False  # whether a second server may listen beside it, for a changeover
    listens: bool = True  # a rank of MPI beyond the first has no endpoints
    engine_key: str = ""  # which the engines' models ask for, so that no client can use them past the router
    remote: str = ""  # where the tiers' engine servers are, if not here: LLM_ROUTER_REMOTE of engines/remote
    left_out: str = ""  # which models are not served although they were asked for, and why
    one_by_one: bool = False  # whether instances of a model load so: slower, but on any machine
    control_key: ControlKey | None = None  # None: what changes the server is open to whoever reaches it

    @property
    def local_host(self) -> str:
        """Where a client on this machine reaches the server."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)

    @property
    def has_engines(self) -> bool:
        """Whether its engines compute on this machine."""
        return not self.remote

    @property
    def loads_explicitly(self) -> bool:
        """Whether models can be unloaded and loaded while the server runs."""
        return flag_value(self.extra, "--model-control-mode") in (None, "explicit")

    @property
    def serves_metrics(self) -> bool:
        return not is_off(flag_value(self.extra, "--allow-metrics"))

    @property
    def ports(self) -> tuple[int, ...]:
        """Those that two servers share while one takes over from the other."""
        return (self.http_port,) if is_off(flag_value(self.extra, "--allow-grpc")) else (self.http_port, self.grpc_port)

    @property
    def plain_grpc_port(self) -> int | None:
        """None where gRPC is off, or asks for TLS."""
        has_it = len(self.ports) > 1 and not grpc_tls_flag(self.extra)
        return self.grpc_port if has_it else None

    @property
    def connection_age_s(self) -> float:
        """How old a gRPC connection gets, give or take a tenth; what runs on it then runs on."""
        given = flag_value(self.extra, CONNECTION_AGE)
        return (int(given) if given and given.isdecimal() else CONNECTION_AGE_MS) / 1000

    @property
    def tolerates_failed_models(self) -> bool:
        """Whether the server is to run without the models that fail to load."""
        return is_off(flag_value(self.extra, "--exit-on-error"))

    def address(self, port: int) -> str:
        host = f"[{self.local_host}]" if ":" in self.local_host else self.local_host
        return f"{host}:{port}"


class Installation(Protocol):
    """Where a tritonserver lies, and what it needs around it."""

    @property
    def root(self) -> Path: ...
    @property
    def tritonserver(self) -> Path: ...
    @property
    def backends(self) -> Path: ...
    @property
    def libraries(self) -> list[Path]: ...
    def variables(self) -> dict[str, str]: ...


@dataclass(frozen=True)
class Start:
    """How a server is started. `rank_logs`: where each rank of MPI beyond the first writes its log."""

    tritonserver: Path
    command: tuple[str, ...]
    variables: Mapping[str, str]
    folder: Path
    shm_prefix: str
    rank_logs: tuple[Path, ...] = ()


def start_of(settings: Settings, installation: Installation) -> Start:
    """One server in one process."""
    prefix = shared_memory.new_prefix()
    words = command(settings, installation, prefix)
    found = variables(settings, installation, prefix)
    if settings.engine_key:
        found[ENGINE_KEY_VARIABLE] = settings.engine_key
    if settings.remote:
        found[REMOTE_VARIABLE] = settings.remote
    return Start(installation.tritonserver, tuple(words), found, installation.root, prefix)


def variables(settings: Settings, installation: Installation, shm_prefix: str) -> dict[str, str]:
    """The environment of a server."""
    found = installation.variables()
    found[SHM_VARIABLE] = shm_prefix
    if settings.one_by_one:
        found.setdefault(*ONE_BY_ONE)
    libraries = [str(path) for path in installation.libraries]
    if libraries:
        found["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [*libraries, found.get("LD_LIBRARY_PATH")]))
    return found


def command(settings: Settings, installation: Installation, shm_prefix: str) -> list[str]:
    """tritonserver's command line. A default that `extra` sets too is left out."""
    given = flag_names(settings.extra)
    wheel = installation.tritonserver.parent.parent
    defaults = [
        ("--model-repository", str(settings.repository)),
        ("--backend-directory", str(installation.backends)),
        ("--cache-directory", str(wheel / "caches")),
        *_endpoints(settings),
        ("--exit-timeout-secs", str(settings.drain_s)),
        ("--disable-auto-complete-config", ""),
    ]
    if settings.config_name:
        defaults.append(("--model-config-name", settings.config_name))
    # Explicit, so that a model whose process died can be repaired: unload, then load.
    defaults.append(("--model-control-mode", "explicit"))
    if settings.loads_explicitly:
        defaults += [("--load-model", model) for model in settings.models]
    flags = [f"{name}={value}" if value else name for name, value in defaults if name not in given]
    # Never left out: it is given once for each setting, and the clean-up relies on this one.
    flags.append(f"{SHM_FLAG}{shm_prefix}")
    if settings.control_key and settings.listens:
        flags += control_key.flags(settings.control_key, settings.extra)
    return [str(installation.tritonserver), *flags, *settings.extra]


def _endpoints(settings: Settings) -> list[tuple[str, str]]:
    if not settings.listens:
        return [(f"--allow-{endpoint}", "false") for endpoint in ("http", "grpc", "metrics")]
    shared = [("--reuse-http-port", "true"), ("--reuse-grpc-port", "true")] if settings.shares_ports else []
    return [
        *shared,
        ("--http-address", settings.host),
        ("--http-port", str(settings.http_port)),
        ("--grpc-address", settings.host),
        ("--grpc-port", str(settings.grpc_port)),
        (CONNECTION_AGE, str(CONNECTION_AGE_MS)),
        ("--metrics-address", settings.metrics_host or settings.host),
        ("--metrics-port", str(settings.metrics_port)),
    ]


def described(start: Start) -> str:
    """The start as a shell would take it: what the environment gets, then the command, a line for each rank."""
    changed = {name: value for name, value in start.variables.items() if os.environ.get(name) != value}
    lines = [f"{name}={shlex.quote(value)}" for name, value in sorted(changed.items())]
    ranks = " ".join("\n:" if word == ":" else shlex.quote(word) for word in start.command)
    return " \\\n".join([*lines, *(part.strip() for part in ranks.split("\n"))])


def shown(path: Path) -> str:
    """The path as seen from where the person is, if that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def _tell_of_a_visible_key(reason: str) -> None:
    print(f"`ps` shows the control key to every user of this machine: {reason}", file=sys.stderr, flush=True)


class TritonServer:
    """A running tritonserver with its stubs. `stop` or `kill`, then `clean_up`."""

    def __init__(self, settings: Settings, start: Start) -> None:
        self.settings = settings
        self._shm_prefix = start.shm_prefix
        self._stubs: Counter[str] = Counter()  # when it was asked to stop
        self._stub_models: dict[int, str] = {}  # by process, when they were last looked for
        self._instances: dict[int, str] = {}  # of those and of earlier ones
        self._rescan_at = 0.0
        with settings.log.open("ab") as log:
            self._process = children.start(start.command, start.variables, start.folder, log)
        threading.Thread(target=self._keep_memory_private, name="private memory", daemon=True).start()
        if settings.control_key:
            secret = settings.control_key.value
            hidden_arguments.hide_later(self._process, start.tritonserver.name, secret, _tell_of_a_visible_key)

    def _keep_memory_private(self) -> None:
        """A file comes with each stub, also with one that is started later."""
        while self._process.poll() is None:
            shared_memory.make_private(self._shm_prefix)
            time.sleep(PRIVATE_S)

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_status(self) -> int | None:
        """None while it runs; negative is the signal that ended it."""
        return self._process.poll()

    def is_ready(self) -> bool:
        """Whether the server answers and every model that it was told to load is ready, or may be missing."""
        # A model that failed keeps the server from being "ready"; it is "live" once all have been tried.
        word = "live" if self.settings.tolerates_failed_models else "ready"
        connection = http.client.HTTPConnection(self.settings.local_host, self.settings.http_port, timeout=2)
        try:
            connection.request("GET", f"/v2/health/{word}")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        """Asks it to finish the requests in flight and to end."""
        self._stubs = self.count_stubs(fresh=True)
        if self.exit_status() is None:
            os.kill(self.pid, signal.SIGTERM)

    def has_answered_all(self) -> bool:
        """Whether, after `stop`, every python model has begun to end its processes: it does so after its last request.

        tritonserver takes a second for each process, one after the other, and does nothing else by then.
        """
        left = self.count_stubs(fresh=False)
        return bool(self._stubs) and all(left[model] < count for model, count in self._stubs.items())

    def count_stubs(self, fresh: bool) -> Counter[str]:
        """How many living processes the python backend runs for each model.

        A fresh count reads all of /proc. Otherwise only those that were known are looked at, and new ones are found
        after RESCAN_S.
        """
        return Counter(self.stubs(fresh).values())

    def stubs(self, fresh: bool) -> dict[int, str]:
        """The model of each living process of the python backend, the oldest process first."""
        gone = any(processes.stub_model(pid) != model for pid, model in self._stub_models.items())
        if fresh or gone or time.monotonic() >= self._rescan_at:
            found = {pid: processes.stub_model(pid) for pid in processes.tree(self.pid)}
            living = sorted((processes.started(pid), pid) for pid, model in found.items() if model)
            self._stub_models = {pid: found[pid] for _, pid in living}
            self._instances |= {pid: name for pid in self._stub_models if (name := processes.stub_instance(pid))}
            self._rescan_at = time.monotonic() + RESCAN_S
        return self._stub_models

    def instance(self, pid: int) -> str:
        """Triton's name for what a process of the python backend is or was; "" where it was never looked at."""
        return self._instances.get(pid, "")

    def idle_routers(self) -> frozenset[int]:
        """The ids of the router's processes, living or dead, that have nothing to do. OSError where it has no table."""
        return table_layout.idle_processes(shared_memory.FOLDER / f"{self._shm_prefix}table")

    def has_ended_well(self) -> bool:
        """Whether, once it has ended after `stop`, no request was cut off."""
        # The server's own status says best whether it came to its end: its count of requests in flight, in the log, is
        # 0 for those that a model already works at.
        return self.exit_status() == 0

    def kill(self) -> None:
        """Ends it and its stubs now."""
        children.kill_group(self.pid, patience_s=0)
        self._process.wait()

    def clean_up(self) -> None:
        """Kills what the server left behind, processes and shared memory."""
        if self.exit_status() is None:
            self.kill()
        children.kill_group(self.pid)
        shared_memory.remove(self._shm_prefix)

    def ending(self) -> str:
        """How it ended, for a person."""
        status = self.exit_status()
        if status is None:
            return "it is still running"
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
