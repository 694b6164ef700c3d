"""Whether this machine has room for a second server beside the first."""

from __future__ import annotations

from pathlib import Path

from scripts.host import container_limits, preflight, processes
from scripts.host.preflight import MIB, Refused
from scripts.server import model_folders
from scripts.server.tritonserver import Settings

CGROUP = Path("/sys/fs/cgroup")


def lacking(pid: int, settings: Settings) -> str:
    """What there is too little of for another server like `pid`; "" where there is enough of all."""
    needed = sum(size for sizes in processes.memory_bytes(pid).values() for size in sizes)
    available = _available_bytes()
    if needed > available:
        return f"it needs about {needed // MIB} MB of memory, and {available // MIB} MB are available"
    instances = model_folders.python_instances(settings.repository, list(settings.models), settings.config_name)
    try:
        preflight.check_shared_memory(instances)
    except Refused as reason:
        return str(reason)
    return ""


def _available_bytes() -> int:
    fields = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    available = next(int(field[1]) * 1024 for field in fields if field[0] == "MemAvailable:")
    limit = container_limits.read(CGROUP).memory_available
    return available if limit is None else min(available, limit)
