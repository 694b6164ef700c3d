"""/v1/messages and /v1/messages/count_tokens: Anthropic's API, as far as text goes."""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from gateway import body as bodies
from gateway import chat_body, finish
from gateway.ask import PREPROCESSING, Ask, Piece, Value, infer_request
from gateway.body import Count, CountOrZero
from gateway.chat_body import MAX_MESSAGES
from gateway.chat_chunks import json_text
from gateway.failures import BadRequest
from gateway.visit import Visit, estimate, new_id


class Turn(Struct):
    role: str
    content: Raw


class CountBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """What counting needs; the rest is read and not looked at."""

    model: str
    messages: Annotated[list[Turn], Meta(min_length=1, max_length=MAX_MESSAGES)]
    system: str | list[Any] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    thinking: dict[str, Any] | None = None


class MessagesBody(CountBody, kw_only=True, forbid_unknown_fields=True):
    max_tokens: Count
    stop_sequences: list[str] | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: CountOrZero | None = None
    stream: bool | None = None
    metadata: dict[str, Any] | None = None
    service_tier: Any = None


_DECODER = msgspec.json.Decoder(MessagesBody)
_COUNT_DECODER = msgspec.json.Decoder(CountBody)


async def create(visit: Visit) -> None:
    raw = await visit.read_body()
    body = bodies.decode(raw, _DECODER)
    ask = _ask(visit, body)
    visit.admit(1, estimate(raw, body.max_tokens, 1))
    with chat_body.names_of("messages[]", "system" if body.system else ""):
        await _answer(visit, body, ask)


async def _answer(visit: Visit, body: MessagesBody, ask: Ask) -> None:
    head = {"id": new_id("msg_"), "type": "message", "role": "assistant", "model": body.model}
    if body.stream:
        await _stream(visit, head, ask, body)
        return
    (text,), (end,) = await visit.whole([ask])
    content = [{"type": "text", "text": text}]
    answer = {**head, "content": content, **_ending(end, body), "usage": _usage(visit)}
    await visit.exchange.reply(200, msgspec.json.encode(answer))


async def count_tokens(visit: Visit) -> None:
    body = bodies.decode(await visit.read_body(), _COUNT_DECODER)
    text, tier = _conversation(body), visit.tier(body.model)
    inputs: dict[str, Value] = {"MESSAGES": text}
    if tier in visit.gateway.settings.tiers:
        inputs["TIER"] = tier
    visit.admit(1, 0)
    with chat_body.names_of("messages[]", "system" if body.system else ""):
        found = await visit.gateway.infer(infer_request(PREPROCESSING, ("REQUEST_INPUT_LEN",), **inputs))
    tokens = int.from_bytes(found["REQUEST_INPUT_LEN"][1][:4], "little")
    await visit.exchange.reply(200, msgspec.json.encode({"input_tokens": tokens}))


def _conversation(body: CountBody) -> str:
    if body.tools:
        raise BadRequest("tools are not supported here; /v1/chat/completions takes one that is named", "tools")
    if body.thinking and body.thinking.get("type") != "disabled":
        raise BadRequest("thinking is not supported", "thinking")
    for place, message in enumerate(body.messages):
        if message.role not in ("user", "assistant"):
            raise BadRequest(f"messages[{place}].role must be user or assistant", "messages")
    turns = [{"role": turn.role, "content": turn.content} for turn in body.messages]
    return chat_body.messages_json([*([{"role": "system", "content": body.system}] if body.system else []), *turns])


def _ask(visit: Visit, body: MessagesBody) -> Ask:
    more: dict[str, Value] = {}
    if body.temperature:
        more["temperature"] = float(body.temperature)
    if body.temperature != 0:
        more |= {"top_p": float(body.top_p)} if body.top_p is not None else {}
        more |= {"top_k": body.top_k} if body.top_k else {}
    if words := bodies.words("stop_sequences", body.stop_sequences):
        more["stop_words"] = words
    user = (body.metadata or {}).get("user_id") or ""
    if not isinstance(user, str) or len(user) > bodies.MAX_USER_CHARACTERS:
        raise BadRequest(f"metadata.user_id must have at most {bodies.MAX_USER_CHARACTERS} characters", "metadata")
    tier, priority = visit.tier(body.model), visit.key.priority
    return Ask(_conversation(body), True, body.max_tokens, bool(body.stream), more, tier, user, priority)


def _ending(end: Piece, body: MessagesBody) -> dict[str, Any]:
    stops = tuple(filter(None, body.stop_sequences or ()))
    word = finish.stop_reason(end, stops) if end.finish == "stop_word" else None
    return {"stop_reason": finish.ANTHROPIC[end.finish], "stop_sequence": word}


def _usage(visit: Visit) -> dict[str, int]:
    return {"input_tokens": visit.tally.prompt_tokens, "output_tokens": visit.tally.completion_tokens}


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))


async def _stream(visit: Visit, head: dict[str, Any], ask: Ask, body: MessagesBody) -> None:
    exchange, end = visit.exchange, Piece()
    async with aclosing(visit.answers([ask])) as pieces:
        async for _, piece in pieces:
            data = b""
            if not exchange.status:
                await exchange.start_stream()
                data = _opening(visit, head)
            if piece.text:
                data += (
                    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
                    b'"delta":{"type":"text_delta","text":%b}}\n\n' % json_text(piece.text)
                )
            end = piece
            if data:
                await exchange.push(data)
    await exchange.finish(
        _event("content_block_stop", index=0)
        + _event("message_delta", delta=_ending(end, body), usage=_usage(visit))
        + _event("message_stop")
    )


def _opening(visit: Visit, head: dict[str, Any]) -> bytes:
    usage = {"input_tokens": visit.tally.prompt_tokens, "output_tokens": 0}
    message = {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    return (
        _event("message_start", message=message)
        + _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        + _event("ping")
    )
