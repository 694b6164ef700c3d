"""How many of a model's processes load at the same time: one for each core.

Triton starts all instances of a model at once and takes one for dead that gives no sign of life for a second; what then
cleans up aborts the server (python_backend 24.10). With 40 router processes that import and warm up together, on a
machine that is busy already, that happens. A process that waits here leaves the cores to the others, and its own sign
of life comes from a thread that doesn't wait.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

LONGEST_WAIT_SECONDS = 60.0  # Whoever holds a turn may be frozen.
_PAUSE_SECONDS = 0.05
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@contextmanager
def loading_turn(
    folder: Path = Path(__file__).parent, turns: int | None = None, longest_seconds: float = LONGEST_WAIT_SECONDS
) -> Iterator[None]:
    """Holds one of `turns` (one for each core that this process may use) once it is free, or goes on without one after
    `longest_seconds`.

    Each is a lock on a Python file of `folder`: all servers of one installation share them, nothing has to be written,
    and a process that dies gives its own back. Where files can't be locked nobody waits.
    """
    with ExitStack() as opened:
        with suppress(OSError):
            paths = sorted(folder.glob("*.py"))[: turns or _cores()]
            _wait([opened.enter_context(path.open("rb")) for path in paths], longest_seconds)
        yield


def _wait(files: Sequence[IO[bytes]], longest_seconds: float) -> None:
    end = time.monotonic() + longest_seconds
    while time.monotonic() < end:
        for file in files:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
        time.sleep(_PAUSE_SECONDS)


def _cores() -> int:
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = _QUOTA.read_text().split()
        return max(1, int(quota) // int(period))  # "max" is no number: no limit
    return len(os.sched_getaffinity(0))
