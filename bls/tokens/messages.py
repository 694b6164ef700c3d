"""A prompt as its checks see it: one turn for each chat message, or a single one for a plain text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bls.errors import BadRequest

Message = Mapping[str, str]
_FIELDS = {"role", "content"}
USER = "user"
PLAIN = "prompt"  # the role of a text that no chat template is put around: its client may have put one there


class Turn(NamedTuple):
    role: str
    text: str


def read_messages(text: str) -> list[Message]:
    """The messages of a JSON list of {"role", "content"}, both strings. Raises BadRequest that names the field."""
    try:
        messages = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"messages is not JSON: {error}") from None
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a JSON list of at least one message")
    for place, message in enumerate(messages):
        _check_message(f"messages[{place}]", message)
    return messages


def _check_message(name: str, message: Any) -> None:
    if not isinstance(message, dict):
        raise BadRequest(f"{name} must be an object with role and content")
    for field in sorted(_FIELDS):
        if field not in message:
            raise BadRequest(f"{name}.{field} is missing")
        if not isinstance(message[field], str):
            raise BadRequest(f"{name}.{field} must be a string")
        if not _is_text(message[field]):
            raise BadRequest(f"{name}.{field} contains half of a surrogate pair")
    unknown = sorted(set(message) - _FIELDS)
    if unknown:
        raise BadRequest(f"{name}.{unknown[0][:40]} is not known; a message has role and content")


def _is_text(value: str) -> bool:
    """JSON can escape a lone surrogate, which no tokenizer can encode."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def turns_of(text: str, messages: str, role: str = USER) -> list[Turn]:
    """The turns of a request, which has one or the other; `role` is that of a text. Raises as `read_messages`."""
    if not messages:
        return [Turn(role, text)]
    return [Turn(message["role"], message["content"]) for message in read_messages(messages)]


def written(turns: Sequence[Turn]) -> str:
    """The JSON list of chat messages that `turns_of` reads."""
    return json.dumps([{"role": turn.role, "content": turn.text} for turn in turns], ensure_ascii=False)
