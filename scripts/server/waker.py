"""Has a server go on that was stopped by a signal: nothing of it answers, and nothing of it is lost yet."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from scripts.host import processes

STOPPED_S = 1.0  # Whoever stops it for a moment, as for a look at its memory, goes on by then.


class Waker:
    """`look` a few times a second at the process `pid`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._since: float | None = None

    def look(self) -> bool:
        """Whether it had to be told to go on."""
        if not processes.is_stopped(self._pid):
            self._since = None
            return False
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if now - self._since < STOPPED_S:
            return False
        self._since = None
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGCONT)
        return True
