"""One tritonserver process: its command line, whether it is ready, and its end, after which nothing of it is left."""

from __future__ import annotations

import http.client
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from scripts import children, processes, shared_memory
from scripts.environment import Environment

RESCAN_S = 30.0


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
    drain_s: int
    log: Path
    extra: tuple[str, ...]
    ready_port: int | None = None  # of scripts/readiness_server.py, where it is wanted

    @property
    def local_host(self) -> str:
        """Where a client on this machine reaches the server."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)

    @property
    def loads_explicitly(self) -> bool:
        """Whether models can be unloaded and loaded while the server runs."""
        return flag_value(self.extra, "--model-control-mode") in (None, "explicit")

    @property
    def tolerates_failed_models(self) -> bool:
        """Whether the server is to run without the models that fail to load."""
        return is_off(flag_value(self.extra, "--exit-on-error"))

    def address(self, port: int) -> str:
        host = f"[{self.local_host}]" if ":" in self.local_host else self.local_host
        return f"{host}:{port}"


def command(settings: Settings, environment: Environment, shm_prefix: str) -> list[str]:
    """tritonserver's command line. A default that `extra` sets too is left out."""
    given = flag_names(settings.extra)
    wheel = environment.tritonserver.parent.parent
    defaults = [
        ("--model-repository", str(settings.repository)),
        ("--backend-directory", str(environment.backends)),
        ("--cache-directory", str(wheel / "caches")),
        ("--http-address", settings.host),
        ("--http-port", str(settings.http_port)),
        ("--grpc-address", settings.host),
        ("--grpc-port", str(settings.grpc_port)),
        ("--metrics-address", settings.host),
        ("--metrics-port", str(settings.metrics_port)),
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
    flags.append(f"--backend-config=python,shm-region-prefix-name={shm_prefix}")
    return [str(environment.tritonserver), *flags, *settings.extra]


def flag_names(arguments: Sequence[str]) -> set[str]:
    """The flags among `arguments`, without their values."""
    return {argument.split("=", 1)[0] for argument in arguments if argument.startswith("--")}


def flag_value(arguments: Sequence[str], flag: str) -> str | None:
    """What the last `--flag=value` or `--flag value` among `arguments` says, None without one."""
    found = None
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        name, equals, value = argument.partition("=")
        if name == flag:
            found = value if equals else following
    return found


def is_off(value: str | None) -> bool:
    """Whether a flag's value is one of those that tritonserver takes for false."""
    return value is not None and value.lower() in ("false", "off", "0")


def shown(path: Path) -> str:
    """The path as seen from where the person is, if that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


class TritonServer:
    """A running tritonserver with its stubs. `stop` or `kill`, then `clean_up`."""

    def __init__(self, settings: Settings, environment: Environment) -> None:
        self.settings = settings
        self._shm_prefix = shared_memory.new_prefix()
        self._stubs: Counter[str] = Counter()  # when it was asked to stop
        self._stub_models: dict[int, str] = {}  # by process, when they were last looked for
        self._rescan_at = 0.0
        variables = environment.variables()
        variables["LLM_ROUTER_SHM_PREFIX"] = self._shm_prefix  # for the table of bls/policy_service.py
        libraries = [str(path) for path in environment.libraries]
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [*libraries, variables.get("LD_LIBRARY_PATH")]))
        with settings.log.open("ab") as log:
            self._process = children.start(
                command(settings, environment, self._shm_prefix), variables, environment.root, log
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_status(self) -> int | None:
        """None while it runs; negative is the signal that ended it."""
        return self._process.poll()

    def is_ready(self) -> bool:
        """Whether the server answers and every model that it was told to load is ready."""
        connection = http.client.HTTPConnection(self.settings.local_host, self.settings.http_port, timeout=2)
        try:
            connection.request("GET", "/v2/health/ready")
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
        gone = any(processes.stub_model(pid) != model for pid, model in self._stub_models.items())
        if fresh or gone or time.monotonic() >= self._rescan_at:
            found = {pid: processes.stub_model(pid) for pid in processes.tree(self.pid)}
            self._stub_models = {pid: model for pid, model in found.items() if model}
            self._rescan_at = time.monotonic() + RESCAN_S
        return Counter(self._stub_models.values())

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
            return "it is running"
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
