"""Tells a worker that computes for long from one that is frozen, by its news and by the CPU time that it uses.

Only time counts in which this process was awake itself: after a machine or a container has slept, nobody is killed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

LOOK_SECONDS = 0.5
_LONGEST_STRIDE_SECONDS = 2 * LOOK_SECONDS  # What one look may count: a longer gap was this process's own.


@dataclass(frozen=True)
class Patience:
    """Seconds without news of a worker that has work to do; 0 means for ever.

    `frozen`: of one that has used no CPU time either, as after SIGSTOP or in a deadlock. `step`: of one that computes,
    perhaps a long prompt in one step on a slow machine.
    """

    frozen: float = 10.0
    step: float = 120.0
    suspicion: float = 2.0  # Of no news and no CPU time: from then on who has no token yet is turned away.


PATIENCE = Patience()


class Silence:
    """One worker's. `cpu_seconds` are those used so far, None where that can't be known: then only `step` holds."""

    def __init__(self, patience: Patience, cpu_seconds: Callable[[], float | None], now: float) -> None:
        self._patience = patience
        self._cpu_seconds = cpu_seconds
        self._cpu: float | None = None
        self._looked = now
        self._silent = 0.0
        self._idle = 0.0

    @property
    def is_suspect(self) -> bool:
        return bool(self._patience.frozen) and self._idle >= self._patience.suspicion

    def seconds_to_look(self, now: float) -> float:
        return max(0.0, self._looked + LOOK_SECONDS - now)

    def broken(self, now: float) -> None:
        """There is news, or nothing to do."""
        self._looked, self._silent, self._idle, self._cpu = now, 0.0, 0.0, None

    def begins(self, now: float) -> None:
        """It gets something to do. If it was given something long ago, it is as silent as it was."""
        if now - self._looked > _LONGEST_STRIDE_SECONDS:
            self.broken(now)

    def look(self, now: float) -> str:
        """Why the worker has to be given up; "" while there is patience."""
        stride = min(now - self._looked, _LONGEST_STRIDE_SECONDS)
        self._looked = now
        self._silent += stride
        before, self._cpu = self._cpu, self._cpu_seconds()
        self._idle = self._idle + stride if before is not None and before == self._cpu else 0.0
        if self._patience.frozen and self._idle >= self._patience.frozen:
            return f"it is frozen: no news and no CPU time used for {self._patience.frozen:g} s"
        if self._patience.step and self._silent >= self._patience.step:
            return f"no news of a step for {self._patience.step:g} s"
        return ""
