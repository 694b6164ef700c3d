"""Ends the router processes that a repair has replaced and that Triton doesn't come to end.

Where a process died over a stream, or one waits for ever for an engine that died, tritonserver 2.51 never unloads what
was loaded before: its other processes, with nothing to do, would stay as long as the server, and take the rows of the
routers' shared table. Those are killed; what is still being answered is left to its end.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

STILL_S = 20.0  # Triton takes a second for each that it ends: after so long without one it has stopped doing so
LOOK_S = 1.0


class OldProcesses:
    """`replaced` after a repair, then `look` as often as there is time.

    idle: the router processes that have nothing to do, or had when they died. OSError where that can't be told.
    """

    def __init__(self, idle: Callable[[], frozenset[int]]) -> None:
        self.ended = 0  # processes so far
        self._idle = idle
        self._old: set[int] = set()
        self._living: set[int] = set()
        self._moved_at = 0.0
        self._look_at = 0.0
        self._were_idle: frozenset[int] = frozenset()

    def replaced(self, pids: set[int]) -> None:
        """Newer processes have taken the place of these."""
        self._old |= pids
        self._moved_at = time.monotonic()

    def were_idle(self, dead: Collection[int]) -> bool:
        """Whether these processes of the router died while they answered nothing, as far as that is known."""
        try:
            return set(dead) <= self._idle()
        except OSError:
            return False

    def look(self, living: Mapping[int, str]) -> int:
        """How many had to be ended. `living`: the model of each living process."""
        now = time.monotonic()
        if not self._old or now < self._look_at:
            return 0
        self._look_at = now + LOOK_S
        self._old &= living.keys()
        if self._old != self._living:
            self._living, self._moved_at = set(self._old), now
        if now - self._moved_at < STILL_S:
            return 0
        try:
            idle = self._idle()
        except OSError:
            return 0
        ending, self._were_idle = self._old & idle & self._were_idle, idle  # at two looks in a row
        for pid in ending:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._old -= ending
        self.ended += len(ending)
        return len(ending)
