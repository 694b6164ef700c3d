"""Small files in shared memory that the processes of one server share; scripts/serve removes them after it."""

from __future__ import annotations

import os
from pathlib import Path

# As scripts/serve names a server's files there, so that they go when it ends, or with those that no process maps.
PREFIX_VARIABLE = "LLM_ROUTER_SHM_PREFIX"
_PREFIX = "llm_router_shm_"
SHARED_MEMORY = Path("/dev/shm")


def path(name: str) -> Path:
    """That of a name, among the files of this server: all its processes are children of one tritonserver."""
    return Path(path_text(name))


def path_text(name: str) -> str:
    """The same, for whoever asks for it with each request."""
    prefix = os.environ.get(PREFIX_VARIABLE) or f"{_PREFIX}{os.getppid()}_{_started_at(os.getppid())}_"
    return f"{SHARED_MEMORY}/{prefix}{name}"


def _started_at(process: int) -> str:
    """In the kernel's ticks: numbers of processes are used again."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
