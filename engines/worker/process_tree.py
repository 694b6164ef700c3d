"""Processes that a library has started: they hold a GPU's memory for as long as they live."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from contextlib import suppress
from pathlib import Path


def below(pid: int) -> list[int]:
    """The processes that `pid` has started, and those that they have. They may come and go meanwhile."""
    children: dict[int, list[int]] = defaultdict(list)
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                children[int(fields[1])].append(int(name))
    found: list[int] = []
    pending = [pid]
    while pending:
        started = children[pending.pop()]
        found += started
        pending += started
    return found


def kill_below(pid: int) -> None:
    """Ends them by force. Before `pid` itself ends: afterwards nothing says any more whose they were."""
    for each in below(pid):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
