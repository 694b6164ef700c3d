"""What a model thinks between <think> and </think> before it answers, told apart from its answer while it streams.

The tags count where they come out as text, as those of Qwen, DeepSeek and their like do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

OPEN, CLOSE = "<think>", "</think>"


class Part(NamedTuple):
    text: str
    is_thought: bool = False
    is_last: bool = False  # of a thought


class Thinking:
    """Takes a text in pieces; what it gives depends on the text alone, never on how it was cut.

    Neither a tag nor the beginning of one is ever given as answer, nor the empty lines behind a thought. What the two
    methods give must be taken to its end.
    """

    def __init__(self) -> None:
        self.is_open = False  # true before the first piece: the prompt ends in <think>, as some templates write it
        self._held = ""
        self._skips_space = False

    def push(self, text: str) -> Iterator[Part]:
        """What is decided by now, in the order of the text."""
        text = self._held + text
        while True:
            tag = CLOSE if self.is_open else OPEN
            begin, found, rest = text.partition(tag)
            begun = 0 if found else _begun(begin, tag)
            self._held = begin[len(begin) - begun :]
            part = begin[: len(begin) - begun]
            was_open, self.is_open = self.is_open, self.is_open != bool(found)
            if was_open:
                self._skips_space = bool(found)
                yield Part(part, is_thought=True, is_last=bool(found))
            elif part := self._shown(part):
                yield Part(part)
            if not found:
                return
            text = rest

    def finish(self) -> Iterator[Part]:
        """What was still held back: half of a tag is no answer."""
        held, self._held = self._held, ""
        if self.is_open:
            yield Part(held, is_thought=True, is_last=True)

    def _shown(self, part: str) -> str:
        if self._skips_space:
            part = part.lstrip()
            self._skips_space = not part
        return part


def ends_thinking(prompt: str) -> bool:
    """Whether a prompt ends where its model is to think."""
    return prompt.rstrip().endswith(OPEN)


def _begun(text: str, tag: str) -> int:
    """How many characters at the end of the text may be the beginning of the tag."""
    return next((size for size in range(len(tag) - 1, 0, -1) if text.endswith(tag[:size])), 0)
