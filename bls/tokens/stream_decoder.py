"""Token ids to text, a piece at a time: what a decoder of a stream is, and the one that works for any tokenizer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

_REPLACEMENT = "\ufffd"
_MAX_HELD = 16


class StreamDecoder(ABC):
    """The text of one stream of ids. Not for more than one thread."""

    @abstractmethod
    def push(self, ids: Sequence[int]) -> str:
        """What became certain with these ids: possibly "", never a part of a character. A list is the fastest."""

    @abstractmethod
    def finish(self) -> str:
        """What was held back; bytes that no character came of are U+FFFD now. Call it once, last."""


class WindowDecoder(StreamDecoder):
    """For a tokenizer that no table can stand for: `decode` gives the text of the last tokens with and without the new
    ones, and the new text is the difference. The work per push doesn't grow with the answer.

    Joined, its pieces are the whole decode of any ids whose text holds no U+FFFD; of broken bytes it may show another
    number of them than the whole decode.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._shown: list[int] = []  # The ids of the piece that was given out last.
        self._held: list[int] = []

    def push(self, ids: Sequence[int]) -> str:
        held = [*self._held, *ids]
        # A character may be short of up to three bytes, so of as many tokens; a longer broken end stays broken.
        for keep in range(min(3, len(held)) + 1):
            shown = held[: len(held) - keep]
            text = self._text_of(shown)
            if not text.endswith(_REPLACEMENT):
                break
        else:
            shown = [] if len(held) <= 3 else held
            text = self._text_of(shown)
        self._held = held[len(shown) :]
        if text:
            self._shown = shown
        elif not self._shown:  # Ids without text matter at the start only, where a space may be taken off.
            self._held = (shown + self._held)[-_MAX_HELD:]
        return text

    def finish(self) -> str:
        text, self._held = self._text_of(self._held), []
        return text

    def _text_of(self, ids: Sequence[int]) -> str:
        if not ids:
            return ""
        before = self._decode(self._shown) if self._shown else ""
        return self._decode([*self._shown, *ids])[len(before) :]
