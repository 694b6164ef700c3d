"""Chat messages as clients of OpenAI's and of Anthropic's API send them, in one form.

That form is OpenAI's with plain texts: {"role", "content"} are strings, and there may be `name`, `tool_call_id`,
`reasoning_content` (strings) and `tool_calls`, whose arguments are JSON as text. Reading it again changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bls.errors import BadRequest

Message = dict[str, Any]
MAX_NAME_CHARACTERS = 256  # of a name or an id

# What kind of thing a part is, by the beginning of its type, in OpenAI's and Anthropic's words.
_NO_TEXT = {
    "image": "an image",
    "input_image": "an image",
    "audio": "audio",
    "input_audio": "audio",
    "video": "a video",
    "input_video": "a video",
    "file": "a file",
    "input_file": "a file",
    "document": "a document",
}
_TEXT_TYPES = ("text", "input_text", "output_text")
_READ = ("role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "refusal")
# What clients keep beside a message that they got, or for other servers. Nothing of it belongs into a prompt.
_PASSED_OVER = frozenset(
    {"annotations", "cache_control", "id", "metadata", "provider_specific_fields", "status", "timestamp", "type"}
)


def read(name: str, given: Any) -> list[Message]:
    """The messages that one of a client's is: one, or more where it holds results of several tools.

    `name` is its own for errors. Raises BadRequest that names the field.
    """
    if not isinstance(given, dict):
        raise BadRequest(f"{name} must be an object with role and content")
    role = _text(f"{name}.role", given.get("role"), MAX_NAME_CHARACTERS)
    _check_fields(name, given)
    results: list[Message] = []
    message: Message = {"role": role, "content": ""}
    calls = _calls(name, given)
    message["content"] = _content(f"{name}.content", given, role, message, calls, results)
    for field in ("name", "tool_call_id"):
        if given.get(field) is not None:
            message[field] = _text(f"{name}.{field}", given[field], MAX_NAME_CHARACTERS)
    for field in ("reasoning_content", "reasoning"):
        if given.get(field):
            message["reasoning_content"] = _text(f"{name}.{field}", given[field])
    if calls:
        message["tool_calls"] = calls
    says_nothing = not message["content"] and not calls and results
    return [*results, *([] if says_nothing else [message])]


def _check_fields(name: str, given: Mapping[str, Any]) -> None:
    for field in sorted(given):
        if field in _READ or field in _PASSED_OVER or field == "function_call" or given[field] in (None, [], {}, ""):
            continue
        for word, what in _NO_TEXT.items():
            if field.startswith(word):
                raise BadRequest(f"{name}.{field} is {what}, which is not supported: only text is")
        raise BadRequest(
            f"{name}.{field[:40]} is not known; a message has role, content, name, tool_calls, tool_call_id"
        )


def _content(
    name: str,
    given: Mapping[str, Any],
    role: str,
    message: Message,
    calls: list[Message],
    results: list[Message],
) -> str:
    """The text. Blocks of Anthropic's that are no text go to where they belong: message, calls and results."""
    content = given.get("content")
    if content is None:
        if given.get("refusal"):
            return _text(f"{name.rpartition('.')[0]}.refusal", given["refusal"])
        if role in ("assistant", "tool", "function"):
            return ""
        raise BadRequest(f"{name} is missing; only an assistant's or a tool's message may have none (role {role[:40]})")
    if isinstance(content, str):
        return _text(name, content)
    if not isinstance(content, list):
        raise BadRequest(f"{name} must be a string or a list of text parts")
    texts = []
    for number, part in enumerate(content):
        place = f"{name}[{number}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "tool_use":
            calls.append(_call(place, {"id": part.get("id"), "function": {**part, "arguments": part.get("input")}}))
        elif kind == "tool_result":
            results.append(_result(place, part))
        elif kind == "thinking":
            thought = _text(f"{place}.thinking", part.get("thinking"))
            message["reasoning_content"] = message.get("reasoning_content", "") + thought
        elif kind != "redacted_thinking":  # which only its author can read
            texts.append(_part_text(place, part))
    return "".join(texts)


def _part_text(name: str, part: Any) -> str:
    """Raises BadRequest for all that isn't text: nothing is ever fetched or decoded."""
    if isinstance(part, str):
        return _text(name, part)
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise BadRequest(f"{name} must be a text part, such as {{type: text, text: ...}}")
    kind = part["type"]
    if kind in _TEXT_TYPES:
        return _text(f"{name}.text", part.get("text"))
    if kind == "refusal":
        return _text(f"{name}.refusal", part.get("refusal"))
    what = next((what for word, what in _NO_TEXT.items() if kind.startswith(word)), None)
    said = f"is {what} ({kind[:40]})" if what else f"has type {kind[:40]!r}"
    raise BadRequest(f"{name} {said}, which is not supported: only text is")


def _result(name: str, part: Mapping[str, Any]) -> Message:
    """A tool_result block of Anthropic's as a tool's message."""
    message: Message = {"role": "tool", "content": ""}
    content = part.get("content")
    parts = content if isinstance(content, list) else [content or ""]
    message["content"] = "".join(_part_text(f"{name}.content[{place}]", each) for place, each in enumerate(parts))
    if part.get("tool_use_id"):
        message["tool_call_id"] = _text(f"{name}.tool_use_id", part["tool_use_id"], MAX_NAME_CHARACTERS)
    return message


def _calls(name: str, given: Mapping[str, Any]) -> list[Message]:
    calls = given.get("tool_calls") or []
    if not isinstance(calls, list):
        raise BadRequest(f"{name}.tool_calls must be a list")
    found = [_call(f"{name}.tool_calls[{place}]", call) for place, call in enumerate(calls)]
    if given.get("function_call"):  # what OpenAI had before tool_calls
        found.append(_call(f"{name}.function_call", {"function": given["function_call"]}))
    return found


def _call(name: str, given: Any) -> Message:
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(function, dict):
        raise BadRequest(f"{name} must be an object with a function")
    call: Message = {"type": "function"}
    if given.get("id") is not None:
        call["id"] = _text(f"{name}.id", given["id"], MAX_NAME_CHARACTERS)
    called = _text(f"{name}.function.name", function.get("name"), MAX_NAME_CHARACTERS)
    return {**call, "function": {"name": called, "arguments": _arguments(f"{name}.function.arguments", function)}}


def _arguments(name: str, function: Mapping[str, Any]) -> str:
    """As JSON in which every letter stands as itself: the checks must see what a template writes."""
    given = function.get("arguments")
    if given is None:
        return "{}"
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return _text(name, given)
    return _text(name, json.dumps(given, ensure_ascii=False))


def _text(name: str, value: Any, most: int | None = None) -> str:
    if value is None:
        raise BadRequest(f"{name} is missing")
    if not isinstance(value, str):
        raise BadRequest(f"{name} must be a string")
    if most is not None and len(value) > most:
        raise BadRequest(f"{name} has {len(value)} characters; at most {most} are taken")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        # JSON can escape a lone surrogate, which no tokenizer can encode.
        raise BadRequest(f"{name} contains half of a surrogate pair")
    return value
