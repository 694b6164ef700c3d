"""When to start the next worker: soon, and the later the more of them fail one after the other."""

from __future__ import annotations

import time

_FIRST_SECONDS = 0.1
_LONGEST_SECONDS = 30.0


class Restart:
    """`due_at` is None while a worker is there."""

    def __init__(self) -> None:
        self._seconds = _FIRST_SECONDS
        self.due_at: float | None = None

    @property
    def is_planned(self) -> bool:
        return self.due_at is not None

    def plan(self) -> None:
        self.due_at = time.monotonic() + self._seconds
        self._seconds = min(2 * self._seconds, _LONGEST_SECONDS)

    def is_due(self) -> bool:
        return self.due_at is not None and time.monotonic() >= self.due_at

    def has_begun(self) -> None:
        self.due_at = None

    def worked(self) -> None:
        """The worker computes: the next failure is a new one."""
        self._seconds = _FIRST_SECONDS
