"""The tritonserver behind a port of this machine, from /proc: its command line, log, processes, memory, /dev/shm."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from scripts.diagnosis.sample import Machine
from scripts.host import container_limits, processes
from scripts.server.model_folders import config_file
from scripts.server.server_options import flag_value

Number = TypeVar("Number", int, float)
_LISTENS = "0A"  # in /proc/net/tcp


class ServerProcess:
    """A tritonserver that this process may look into."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")

    @property
    def log(self) -> Path | None:
        """The file that its output goes to."""
        with suppress(OSError):
            output = Path(os.readlink(f"/proc/{self.pid}/fd/1"))
            return output if output.is_file() else None
        return None

    @property
    def repository(self) -> Path | None:
        named = flag_value(self._arguments, "--model-repository") or flag_value(self._arguments, "--model-store")
        return Path(named) if named else None

    def variable(self, name: str) -> str:
        """Of its environment; "" where it is not set or may not be read."""
        with suppress(OSError):
            pairs = Path(f"/proc/{self.pid}/environ").read_bytes().decode(errors="replace").split("\0")
            return dict(pair.partition("=")[::2] for pair in pairs).get(name, "")
        return ""

    def config_file(self, model: str) -> str:
        """Where the model's config is edited."""
        if not self.repository:
            return f"{model}/config.pbtxt"
        return str(config_file(self.repository / model, flag_value(self._arguments, "--model-config-name")))

    def machine(self) -> Machine | None:
        """As the server sees it, which may be a container's share. None once the process is gone."""
        root = Path(f"/proc/{self.pid}/root")
        try:
            memory = {name: kilobytes * 1024 for name, kilobytes in _numbers(Path("/proc/meminfo"), ":").items()}
            limits = container_limits.read(root / "sys" / "fs" / "cgroup")
            shm = os.statvfs(root / "dev" / "shm")
            kills = limits.oom_kills
            return Machine(
                cores=_least(len(os.sched_getaffinity(self.pid)), limits.cores),
                cpu_seconds=sum(processes.cpu_seconds(self.pid).values()),
                memory_total=_least(memory["MemTotal"], limits.memory_total),
                memory_available=_least(memory["MemAvailable"], limits.memory_available),
                shm_total=shm.f_blocks * shm.f_frsize,
                shm_free=shm.f_bavail * shm.f_frsize,
                oom_kills=_numbers(Path("/proc/vmstat"), " ").get("oom_kill", 0) if kills is None else kills,
                stubs=Counter(filter(None, map(processes.stub_model, processes.tree(self.pid)))),
            )
        except (OSError, KeyError):
            return None


def find(port: int) -> ServerProcess | None:
    """The tritonserver that listens on `port`; None where that is on another machine or not to be looked into."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    for entry in Path("/proc").iterdir() if sockets else ():
        if entry.name.isdigit() and processes.role(int(entry.name)) == "tritonserver" and _holds(entry, sockets):
            with suppress(OSError):
                return ServerProcess(int(entry.name))
    return None


def _listening(port: int) -> Sequence[str]:
    inodes = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.append(fields[9])
    return inodes


def _holds(process: Path, sockets: set[str]) -> bool:
    with suppress(OSError):
        for link in (process / "fd").iterdir():
            with suppress(OSError):
                if os.readlink(link) in sockets:
                    return True
    return False


def _least(whole: Number, limit: Number | None) -> Number:
    return whole if limit is None else min(whole, limit)


def _numbers(path: Path, separator: str) -> dict[str, int]:
    found = {}
    for line in path.read_text().splitlines():
        name, _, rest = line.partition(separator)
        if words := rest.split():
            found[name] = int(words[0])
    return found
