"""A prompt as its checks see it: one turn for each text of the chat messages, or a single one for a plain text.

What clients may send as messages, and its one form here, is in message_form.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bls.errors import BadRequest
from bls.tokens import message_form
from bls.tokens.message_form import Message as Message

USER = "user"
PLAIN = "prompt"  # the role of a text that no chat template is put around: its client may have put one there


class Turn(NamedTuple):
    role: str
    text: str


@dataclass(frozen=True)
class Conversation:
    """`messages` in the form of message_form.py; `places` says which one of the client's each of them was."""

    messages: list[Message]
    places: list[int]


def read_conversation(text: str) -> Conversation:
    """Reads a JSON list of messages. Raises BadRequest that names the message and the field."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"messages is not JSON: {error}") from None
    if not isinstance(given, list) or not given:
        raise BadRequest("messages must be a JSON list of at least one message")
    messages: list[Message] = []
    places: list[int] = []
    for place, message in enumerate(given):
        found = message_form.read(f"messages[{place}]", message)
        messages += found
        places += [place] * len(found)
    return Conversation(messages, places)


def read_messages(text: str) -> list[Message]:
    """The messages alone. Raises as `read_conversation`."""
    return read_conversation(text).messages


def turns_of(text: str, messages: str, role: str = USER) -> list[Turn]:
    """The turns of a request, which has one or the other; `role` is that of a text. Raises as `read_messages`.

    A message's content is one turn, however many parts it came in; what it says beside that, such as the arguments of
    a tool's call, are turns of the same role.
    """
    if not messages:
        return [Turn(role, text)]
    found = read_messages(messages)
    return [Turn(message["role"], place[key]) for message in found for place, key in _texts(message)]


def written(messages: str, turns: Sequence[Turn]) -> str:
    """The same chat messages with the texts of `turns`, as `turns_of` gave them, as a JSON list."""
    found = read_messages(messages)
    places = [place for message in found for place in _texts(message)]
    for (place, key), turn in zip(places, turns, strict=True):
        place[key] = turn.text
    return json.dumps(found, ensure_ascii=False)


def _texts(message: Message) -> Iterator[tuple[dict[str, Any], str]]:
    """Where the texts stand that a template may write into the prompt."""
    yield message, "content"
    for key in ("name", "reasoning_content"):
        if message.get(key):
            yield message, key
    for call in message.get("tool_calls", ()):
        yield call["function"], "name"
        yield call["function"], "arguments"
