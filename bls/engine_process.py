"""Whether the process of an engine's model still lives, for a router process that waits for its stream.

Triton 2.51 never ends the streams of a process that died. So each such process leaves its number in shared memory once
it is loaded, and whoever waits for it looks now and then. An engine that has no process of its own, as TensorRT-LLM's
backend, leaves none, and counts as living.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

from bls.routing import server_files

_mapped: dict[str, mmap.mmap] = {}  # by model, what this process has announced


@dataclass(frozen=True)
class EngineProcess:
    """`started` is in the kernel's ticks: numbers of processes are used again."""

    pid: int
    started: str

    @property
    def is_gone(self) -> bool:
        return _started(self.pid) != self.started


def announce(model: str) -> None:
    """This process serves `model` from now on; the newest one gets its requests.

    It keeps the file mapped: one that no process maps is taken for a dead server's, by scripts/host/shared_memory.py,
    when another server starts on the machine.
    """
    file = server_files.path(f"engine_{model}")
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(f"{os.getpid()} {_started(os.getpid())}")
    with draft.open("rb") as written:
        _mapped[model] = mmap.mmap(written.fileno(), 0, access=mmap.ACCESS_READ)
    draft.replace(file)


def of(model: str) -> EngineProcess | None:
    """What serves `model` now; None where nobody said so, or where that process is gone already."""
    try:
        pid, started = _text(server_files.path_text(f"engine_{model}")).split()
    except (OSError, ValueError):
        return None
    found = EngineProcess(int(pid), started)
    return None if found.is_gone else found


def _started(pid: int) -> str:
    """ "" for a process that is gone, or that has ended and is not waited for."""
    try:
        fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _text(path: str) -> str:
    """Of a file: each request asks, and Path.read_text takes three times as long."""
    with open(path, "rb", 0) as file:
        return file.read().decode(errors="replace")
