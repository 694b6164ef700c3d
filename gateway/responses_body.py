"""The body of /v1/responses, and what it asks the router for."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from gateway import body as bodies
from gateway import chat_body
from gateway.ask import WHAT_FITS, Ask, Value
from gateway.body import Count
from gateway.chat_body import MAX_MESSAGES, JsonSchema, ResponseFormat
from gateway.failures import BadRequest
from gateway.visit import Visit


class Item(Struct):
    """A message of the input; items of any other type are refused."""

    role: str = ""
    content: str | list[Any] = ""
    type: str = "message"


class Text(Struct):
    format: dict[str, Any] | None = None
    verbosity: Any = None


class ResponsesBody(Struct, kw_only=True, forbid_unknown_fields=True):
    model: str
    input: str | Annotated[list[Item], Meta(min_length=1, max_length=MAX_MESSAGES)]
    instructions: str | None = None
    max_output_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    text: Text | None = None
    stream: bool | None = None
    user: str | None = None
    service_tier: str | None = None
    # Refused where they ask for something.
    store: bool | None = None
    previous_response_id: Any = None
    conversation: Any = None
    background: bool | None = None
    tools: list[Any] | None = None
    prompt: Any = None
    top_logprobs: int | None = None
    truncation: str | None = None
    # Without an effect here, and without harm.
    metadata: dict[str, Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    max_tool_calls: Any = None
    reasoning: Any = None
    include: Any = None
    safety_identifier: str | None = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None
    stream_options: Any = None


_DECODER = msgspec.json.Decoder(ResponsesBody)
_REFUSED = {
    "store": "nothing is stored here: send the whole conversation as input",
    "previous_response_id": "nothing is stored here: send the whole conversation as input",
    "conversation": "nothing is stored here: send the whole conversation as input",
    "background": "answers in the background are not supported",
    "tools": "tools are not supported here; /v1/chat/completions takes one that is named",
    "prompt": "stored prompts are not supported",
    "top_logprobs": "logprobs are not supported: they would tell the words that the filter masks",
}


def read(raw: bytes) -> ResponsesBody:
    """Raises BadRequest."""
    body = bodies.decode(raw, _DECODER)
    for name, why in _REFUSED.items():
        if getattr(body, name):
            raise BadRequest(f"{name}: {why}", name)
    if body.truncation not in (None, "disabled"):
        raise BadRequest("truncation must be disabled: nothing is left out silently", "truncation")
    return body


def max_tokens_of(body: ResponsesBody) -> int | None:
    return body.max_output_tokens


def ask_of(visit: Visit, body: ResponsesBody) -> Ask:
    """Raises a Failure."""
    more: dict[str, Value] = _guide(body.text)
    if body.temperature:
        more["temperature"] = float(body.temperature)
    if body.top_p is not None and body.temperature != 0:
        more["top_p"] = float(body.top_p)
    user = body.safety_identifier or body.user or ""
    if len(user) > bodies.MAX_USER_CHARACTERS:
        raise BadRequest(f"user must have at most {bodies.MAX_USER_CHARACTERS} characters", "user")
    priority = bodies.priority_of(body.service_tier, visit.key.priority)
    limit = body.max_output_tokens or WHAT_FITS
    text = chat_body.messages_json(_messages(body))
    return Ask(text, True, limit, bool(body.stream), more, visit.tier(body.model), user, priority)


def _messages(body: ResponsesBody) -> list[dict[str, Any]]:
    first = [{"role": "system", "content": body.instructions}] if body.instructions else []
    if isinstance(body.input, str):
        return [*first, {"role": "user", "content": body.input}]
    for place, item in enumerate(body.input):
        if item.type != "message":
            raise BadRequest(f"input[{place}].type {item.type[:32]!r} is not supported: only message is", "input")
    return first + [{"role": item.role, "content": item.content} for item in body.input]


def _guide(text: Text | None) -> dict[str, Value]:
    form = (text and text.format) or {"type": "text"}
    schema = form.get("schema")
    if form.get("type") == "json_schema" and isinstance(schema, dict):
        return chat_body.schema_guide(schema)
    return chat_body.guide_of(ResponseFormat(str(form.get("type")), JsonSchema()))
