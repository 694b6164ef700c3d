"""CPU time and memory of a server's processes, from /proc."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from engines.worker import process_tree

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
ENGINE_PROCESS = "engine"
_ENGINE_MODULES = (["engines.worker.worker"], ["engines.worker.shared_worker"])


def tree(pid: int) -> list[int]:
    """The process and all below it. Processes may come and go meanwhile."""
    return [pid, *process_tree.below(pid)]


def role(pid: int) -> str:
    """The model that a stub serves, "engine" for the process that computes, else the program's name."""
    words = command(pid)
    return stub_model(pid) or (ENGINE_PROCESS if words[2:3] in _ENGINE_MODULES else Path(words[0]).name)


def stub_model(pid: int) -> str:
    """The model whose stub the process is; "" for any other process, one that has ended included."""
    words = command(pid)
    model_file = Path(words[1]) if len(words) > 1 and words[0].endswith("triton_python_backend_stub") else None
    return model_file.parent.parent.name if model_file else ""


def stub_instance(pid: int) -> str:
    """Triton's name for the instance whose stub the process is; "" for any other process, one that has ended
    included."""
    words = command(pid)
    return words[8] if stub_model(pid) and len(words) > 8 else ""


def with_variable(name: str, value: str) -> list[int]:
    """This user's processes that were started with the environment variable `name` set to `value`."""
    wanted = f"{name}={value}".encode()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it ended, or is another user's
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(int(pid))
    return found


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and is not waited for doesn't."""
    return process_tree.stat(pid)[:1] not in ([], ["Z"])


def has_living(group: int) -> bool:
    """Whether a process of the group runs."""
    stats = (process_tree.stat(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return any(fields[2] == str(group) and fields[0] != "Z" for fields in stats if fields)


def is_stopped(pid: int) -> bool:
    """Whether a signal (SIGSTOP, SIGTSTP) has stopped it. A debugger that holds it is another matter."""
    return process_tree.stat(pid)[:1] == ["T"]


def parent(pid: int) -> int:
    """0 if the process is gone."""
    fields = process_tree.stat(pid)
    return int(fields[1]) if fields else 0


def started(pid: int) -> int:
    """When the process started, in ticks since the machine did; 0 if it is gone."""
    fields = process_tree.stat(pid)
    return int(fields[19]) if fields else 0


def command(pid: int) -> list[str]:
    """The process's command line, word by word; one empty word if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return [""]


def cpu_seconds(pid: int) -> dict[str, float]:
    """User and system time so far, by role, of the process and all below it."""
    seconds: dict[str, float] = defaultdict(float)
    for each in tree(pid):
        if fields := process_tree.stat(each):
            seconds[role(each)] += (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
    return dict(seconds)


def memory_bytes(pid: int) -> dict[str, list[int]]:
    """Proportional set size (a shared page counts as its share) of each process, by role."""
    sizes: dict[str, list[int]] = defaultdict(list)
    for each in tree(pid):
        try:
            text = Path(f"/proc/{each}/smaps_rollup").read_text()
            sizes[role(each)].append(int(text.partition("\nPss:")[2].split()[0]) * 1024)
        except (OSError, IndexError):
            continue
    return dict(sizes)
