"""Deny matches that are complete but not decided: an allow word may still contain them, or a letter touch them."""

from __future__ import annotations

from typing import NamedTuple

NEVER = 1 << 62  # a position that no stream reaches


class Match(NamedTuple):
    """Raw characters `start` to `end` (exclusive) are a word of a category, by its number."""

    start: int
    end: int
    category: int


class Candidate(NamedTuple):
    match: Match
    needs_boundary: bool  # the character to the right must not be an ASCII letter or digit


class Candidates:
    """Those of one matcher. `waiting` is replaced, never changed."""

    __slots__ = ("_allowed_from", "_allowed_to", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Candidate] = []
        self._allowed_to = -1  # where allow words ended last,
        self._allowed_from = NEVER  # and where the longest of them began

    def add(self, match: Match, needs_boundary: bool) -> None:
        self.waiting = [*self.waiting, Candidate(match, needs_boundary)]

    def allow(self, start: int, end: int) -> None:
        """An allow word is complete."""
        self._allowed_from = min(self._allowed_from, start) if end == self._allowed_to else start
        self._allowed_to = end

    def seen_boundary(self, is_boundary: bool) -> None:
        """What follows the candidates that wait for it."""
        if self.waiting:
            self.waiting = [
                Candidate(candidate.match, False) if candidate.needs_boundary else candidate
                for candidate in self.waiting
                if is_boundary or not candidate.needs_boundary
            ]

    def settle(self, end: int, may_be_allowed_from: int) -> list[Match]:
        """Drops what an allow word that ends at `end` contains; returns what none can contain any more.

        An allow word that is still under way begins at `may_be_allowed_from` at the earliest.
        """
        allowed_from = self._allowed_from if self._allowed_to == end else NEVER
        waiting, decided = [], []
        for candidate in dict.fromkeys(self.waiting):
            start = candidate.match.start
            if allowed_from <= start:
                continue
            if candidate.needs_boundary or may_be_allowed_from <= start:
                waiting.append(candidate)
            else:
                decided.append(candidate.match)
        self.waiting = waiting
        return decided

    def rest(self) -> list[Match]:
        """What the end of the text decides: all of it."""
        decided = list(dict.fromkeys(candidate.match for candidate in self.waiting))
        self.waiting = []
        return decided

    def copy(self) -> Candidates:
        copy = Candidates()
        copy.waiting, copy._allowed_to, copy._allowed_from = self.waiting, self._allowed_to, self._allowed_from
        return copy
