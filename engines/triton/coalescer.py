"""Gathers the new ids of one stream, to leave in few responses: a stream costs what its messages cost, not its ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """The first ids of a stream go at once, then `tokens` at a time or every `seconds`, whichever is set."""

    seconds: float = 0.0
    tokens: int | None = None

    @property
    def slack(self) -> float:
        """How much too early ids may leave when others leave anyway: one wake-up serves all."""
        return self.seconds / 4


class Coalescer:
    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._ids: list[int] = []
        self._log_probs: list[float] = []
        self._last_taken: float | None = None

    def add(self, ids: Sequence[int], log_probs: Sequence[float]) -> None:
        self._ids += ids
        self._log_probs += log_probs

    def due(self) -> float | None:
        """When the gathered ids should leave (monotonic seconds; 0 is now); None while there is nothing to send."""
        if not self._ids:
            return None
        if self._last_taken is None:
            return 0.0
        if self._pace.tokens is not None:
            return 0.0 if len(self._ids) >= self._pace.tokens else None
        return self._last_taken + self._pace.seconds

    def take(self, now: float) -> tuple[list[int], list[float]]:
        """All that has gathered."""
        taken = self._ids, self._log_probs
        self._ids, self._log_probs = [], []
        self._last_taken = now
        return taken
