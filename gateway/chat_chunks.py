"""The events of a streamed chat completion, out of byte templates: what is the same in all is written once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

DONE = b"data: [DONE]\n\n"
_encode = msgspec.json.Encoder().encode
# Characters that some readers of lines take for a line's end.
_ENDS = {"\u2028": b"\\u2028", "\u2029": b"\\u2029", "\x85": b"\\u0085"}


def json_text(text: str) -> bytes:
    """The text as a JSON string that holds no line's end of any reader."""
    encoded = _encode(text)
    if not text.isascii():
        for character, escape in _ENDS.items():
            if character in text:
                encoded = encoded.replace(character.encode(), escape)
    return encoded


class Chunks:
    """Of one response. `head` holds what every chunk begins with: id, object, created, model.

    With `has_usage` every chunk says that there is no usage yet, as OpenAI's do; `usage` is the last one then.
    """

    def __init__(self, head: Mapping[str, Any], has_usage: bool) -> None:
        self._head = b"data: " + _encode(head)[:-1] + b',"choices":['
        self._tail = b'],"usage":null}\n\n' if has_usage else b"]}\n\n"

    def delta(self, index: int, delta: bytes, usage: Mapping[str, Any] | None = None) -> bytes:
        """A chunk with this JSON as its delta."""
        choice = b'{"index":%d,"delta":%b,"logprobs":null,"finish_reason":null}' % (index, delta)
        return self._head + choice + self._ending(usage)

    def text(self, index: int, text: str, usage: Mapping[str, Any] | None = None) -> bytes:
        """A chunk of /v1/completions, which has no deltas."""
        choice = b'{"index":%d,"text":%b,"logprobs":null,"finish_reason":null}' % (index, json_text(text))
        return self._head + choice + self._ending(usage)

    def choice(self, choice: Mapping[str, Any], usage: Mapping[str, Any] | None = None) -> bytes:
        """A chunk with this as its choice."""
        return self._head + _encode(choice) + self._ending(usage)

    def end(
        self,
        index: int,
        reason: str,
        delta: Mapping[str, Any],
        stop_reason: str | None,
        usage: Mapping[str, Any] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> bytes:
        """The last chunk of a choice; `more` are further fields of the chunk."""
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
        if stop_reason is not None:
            choice["stop_reason"] = stop_reason
        ending = self._ending(usage)
        if more:
            ending = b"]," + _encode(more)[1:-1] + ending[1:]
        return self._head + _encode(choice) + ending

    def usage(self, usage: Mapping[str, Any]) -> bytes:
        """The chunk without a choice."""
        return self._head + b'],"usage":' + _encode(usage) + b"}\n\n"

    def _ending(self, usage: Mapping[str, Any] | None) -> bytes:
        return self._tail if usage is None else b'],"usage":' + _encode(usage) + b"}\n\n"
