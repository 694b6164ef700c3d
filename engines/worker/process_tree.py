"""What a process has started, from /proc.

Not by psutil: it looks at the same files in the same time, and would take 3 MB in each process of an engine.
"""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from contextlib import suppress
from pathlib import Path


def below(pid: int) -> list[int]:
    """The processes that `pid` has started, and those that they have. They may come and go meanwhile."""
    children: dict[int, list[int]] = defaultdict(list)
    # Not /proc/<pid>/task/*/children: that is slow with a thousand threads, and may leave one out while others end.
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := stat(int(name))):
            children[int(fields[1])].append(int(name))
    found: list[int] = []
    pending = [pid]
    while pending:
        started = children[pending.pop()]
        found += started
        pending += started
    return found


def stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat behind the name, its state first; none if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_seconds(pid: int) -> float | None:
    """What all threads of the process have used so far; None if it can't be told."""
    fields = stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else None


def kill(pid: int) -> None:
    """Ends the process by force, and what it has started."""
    kill_below(pid)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_below(pid: int) -> None:
    """Ends them by force, since they hold a GPU's memory for as long as they live.

    Before `pid` itself ends: afterwards nothing says any more whose they were.
    """
    for each in below(pid):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
