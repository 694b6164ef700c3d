"""Messages as a model's chat template can take them, and what to say where it can't."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bls.errors import BadRequest
from bls.tokens.message_form import Message

MAX_TRIALS = 256  # renderings to find out which message a template objects to


def fitted(messages: Sequence[Message], source: str) -> list[Message]:
    """What the template `source` knows stays, and the rest is said in what every template knows: role and content."""
    return [_fitted(message, source) for message in messages]


def _fitted(message: Message, source: str) -> Message:
    found = dict(message)
    if found["role"] == "developer" and "developer" not in source:
        found["role"] = "system"
    if found["role"] == "function":
        found["role"] = "tool"
    calls = found.get("tool_calls")
    if not calls:
        return found
    if "tool_calls" in source:
        found["tool_calls"] = [_with_object(call) for call in calls]
        return found
    del found["tool_calls"]
    functions = [_with_object(call)["function"] for call in calls]
    said = "\n".join(json.dumps(function, ensure_ascii=False) for function in functions)
    found["content"] = f"{found['content']}\n{said}" if found["content"] else said
    return found


def _with_object(call: Message) -> Message:
    """Templates write the arguments of a call as JSON themselves, so they get the object."""
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": arguments}} if isinstance(arguments, dict) else call


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """The same objects and lists, each text in them changed, keys too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {each_text(key, change): each_text(item, change) for key, item in value.items()}
    return [each_text(item, change) for item in value] if isinstance(value, list) else value


def texts_in(value: Any) -> Iterator[str]:
    """What `each_text` would change."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from texts_in(item)


def names_of(messages: Sequence[Message], places: Sequence[int] | None) -> list[str]:
    """What errors call each message."""
    numbers = range(len(messages)) if places is None else places
    return [f"messages[{number}] (role {each['role'][:40]!r})" for number, each in zip(numbers, messages, strict=True)]


def check_whole(messages: Sequence[Message], names: Sequence[str], text: str) -> None:
    """Raises BadRequest for a message that the template has left out of `text`.

    But not for an assistant's: templates leave out its earlier thoughts on purpose.
    """
    for message, name in zip(messages, names, strict=True):
        content = message["content"].strip()
        if message["role"] == "assistant" or content in text or json.dumps(content, ensure_ascii=False)[1:-1] in text:
            continue
        raise BadRequest(f"{name} is left out by the model's chat template; send it in another role")


def first_refused(
    messages: Sequence[Message], names: Sequence[str], error: BadRequest, render: Callable[[Sequence[Message]], Any]
) -> BadRequest:
    """The same error, with the name of the message at which the template began to object."""
    for count in range(1, min(len(messages), MAX_TRIALS)):
        try:
            render(messages[:count])
        except BadRequest as other:
            if other.reason == error.reason:
                return BadRequest(f"{names[count - 1]}: {error.reason}")
    return BadRequest(f"{names[-1]}: {error.reason}") if len(messages) <= MAX_TRIALS else error
