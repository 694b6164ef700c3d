"""The processes of a running server that a test may kill or freeze, by what they do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from scripts.host import processes

_LOOK_SECONDS = 0.5
_SHORT_LOOK_SECONDS = 0.15  # beyond the 100 ms in which an engine gathers a stream's tokens


def stubs(server: Any, model: str) -> list[int]:
    """The processes of a python model, in the order of their ids."""
    return sorted(pid for pid in processes.tree(server.supervisor_pid) if processes.stub_model(pid) == model)


def engine_workers(server: Any, model: str) -> list[int]:
    """What computes for an engine's model: the processes below its stub."""
    below = {pid for stub in stubs(server, model) for pid in processes.tree(stub) if pid != stub}
    return sorted(pid for pid in below if processes.role(pid) == processes.ENGINE_PROCESS)


def tritonserver(server: Any) -> int:
    """The newest tritonserver under the supervisor, which may have started another one since."""
    return max(pid for pid in processes.tree(server.supervisor_pid) if processes.role(pid) == "tritonserver")


def streaming(pids: list[int]) -> int:
    """One whose main thread has run in each of four looks: of router processes, one in mid-stream."""
    least = dict.fromkeys(pids, float("inf"))
    for _ in range(4):
        before = {pid: _main_thread_ns(pid) for pid in pids}
        time.sleep(_SHORT_LOOK_SECONDS)
        least = {pid: min(least[pid], _main_thread_ns(pid) - before[pid]) for pid in pids}
    return max(pids, key=lambda pid: least[pid])


def idlest(pids: list[int]) -> int:
    """The one that computes least, in half a second; of several the newest."""
    before = {pid: _cpu_seconds(pid) for pid in pids}
    time.sleep(_LOOK_SECONDS)
    return min(reversed(pids), key=lambda pid: _cpu_seconds(pid) - before[pid])


def _cpu_seconds(pid: int) -> float:
    return sum(processes.cpu_seconds(pid).values())


def _main_thread_ns(pid: int) -> int:
    """Nanoseconds that it has run, as the scheduler counts them: finer than the ticks of cpu_seconds."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    except OSError:  # it has ended
        return 0
