"""How soon a server that died is started again: at once, then ever later, until one has served for a while."""

from __future__ import annotations

LONGEST_S = 60.0
SERVED_WELL_S = 600.0


class RestartPace:
    """Seconds to wait before each start."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def pause_s(self, served_s: float) -> float:
        """Before the next start, where the last server served so long (0: it never got ready)."""
        if served_s >= SERVED_WELL_S:
            self._next_s = 0.0
        pause = self._next_s
        self._next_s = min(LONGEST_S, max(1.0, 2 * pause))
        return pause
