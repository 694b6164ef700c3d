"""Finds stop words, sequences of token ids, in a stream of ids."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class StopWords:
    """Remembers as many ids as the longest word has."""

    def __init__(self, words: Sequence[tuple[int, ...]]) -> None:
        self._words = tuple(words)
        self._recent: deque[int] = deque(maxlen=max((len(word) for word in words), default=0))

    def kept(self, ids: Sequence[int]) -> int | None:
        """How many of the new `ids` remain, the last of them ending a stop word; None if none ends here."""
        if not self._words:
            return None
        for count, token in enumerate(ids, 1):
            self._recent.append(token)
            if any(self._ends_with(word) for word in self._words):
                return count
        return None

    def _ends_with(self, word: tuple[int, ...]) -> bool:
        start = len(self._recent) - len(word)
        return start >= 0 and all(self._recent[start + index] == token for index, token in enumerate(word))
