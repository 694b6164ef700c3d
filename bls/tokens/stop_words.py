"""Finds words in a text that arrives in pieces: which may go out, and where the first word begins.

A word counts where it ends first; of two that end together, the longer. So the result depends on the text alone,
never on how it was cut.
"""

from __future__ import annotations

from collections.abc import Iterable


class WordStop:
    """Lets text through until one of `words` is complete, and holds back only what may still become one.

    After a hit `hit` is the word, and nothing more comes out. Empty words are ignored.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._tracks = [_Track(word) for word in dict.fromkeys(words) if word]
        self._held = ""
        self.hit: str | None = None

    def push(self, text: str) -> str:
        """The text that is safe to show now: no part of it can belong to a word."""
        if self.hit is not None:
            return ""
        if not self._tracks:
            return text
        text = self._held + text
        for position in range(len(self._held), len(text)):
            done = [track for track in self._tracks if track.step(text[position])]
            if done:
                self.hit = max((track.word for track in done), key=len)
                self._held = ""
                return text[: position + 1 - len(self.hit)]
        keep = max(track.matched for track in self._tracks)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """What was still held when the text ended."""
        held, self._held = self._held, ""
        return held


class _Track:
    """How much of one word the text's end matches, by Knuth, Morris and Pratt: one step a character."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.matched = 0
        self._fallback = [0] * len(word)  # After word[:i + 1], the longest proper prefix that is also its suffix.
        length = 0
        for i in range(1, len(word)):
            while length and word[i] != word[length]:
                length = self._fallback[length - 1]
            length += word[i] == word[length]
            self._fallback[i] = length

    def step(self, character: str) -> bool:
        """Takes one character; true once the word is complete."""
        while self.matched and character != self.word[self.matched]:
            self.matched = self._fallback[self.matched - 1]
        self.matched += character == self.word[self.matched]
        return self.matched == len(self.word)
