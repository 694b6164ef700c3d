"""/v1/chat/completions."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import Any

import msgspec

from gateway import body as bodies
from gateway import chat_body, finish
from gateway.ask import WHAT_FITS, Ask, Piece
from gateway.chat_body import ChatBody, Function
from gateway.chat_chunks import DONE, Chunks, json_text
from gateway.visit import Visit, estimate, fingerprint, new_id, service_tier


async def create(visit: Visit) -> None:
    raw = await visit.read_body()
    body = chat_body.read(raw)
    answers = body.n or 1
    asks = _asks(visit, body, answers)
    visit.admit(answers, estimate(raw, body.limit, answers), answers)
    if body.stream:
        await _stream(visit, body, asks)
    else:
        await _whole(visit, body, asks)


def _asks(visit: Visit, body: ChatBody, answers: int) -> list[Ask]:
    inputs = {**bodies.sampling(body), **chat_body.guide(body)}
    text = chat_body.messages_json(body.messages)
    tier, user = visit.tier(body.model), bodies.user_of(body)
    values = msgspec.json.encode(body.chat_template_kwargs).decode() if body.chat_template_kwargs else ""
    priority = bodies.priority_of(body.service_tier, visit.key.priority)
    found = []
    for number in range(answers):
        more = {**inputs, "seed": (body.seed + number) % 2**64} if body.seed is not None else inputs
        limit = body.limit or WHAT_FITS
        found.append(Ask(text, True, limit, bool(body.stream), more, tier, user, priority, values))
    return found


async def _whole(visit: Visit, body: ChatBody, asks: list[Ask]) -> None:
    texts, ends = await visit.whole(asks)
    tool = chat_body.forced_tool(body)
    stops = _stops(body)
    choices = [_choice(index, texts[index], ends[index], tool, stops) for index in range(len(asks))]
    answer = {
        **_head(body, visit, "chat.completion"),
        "system_fingerprint": fingerprint(ends[0]),
        "choices": choices,
        "usage": visit.tally.usage(),
        **(visit.details(ends[0]) or {}),
    }
    await visit.exchange.reply(200, msgspec.json.encode(answer))


def _choice(index: int, text: str, end: Piece, tool: Function | None, stops: tuple[str, ...]) -> dict[str, Any]:
    refusal = text if end.finish == "refused" else None
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": refusal}
    reason = finish.OPENAI[end.finish]
    if tool is not None and refusal is None:
        message["content"], message["tool_calls"] = None, [_call(tool, text)]
        reason = "tool_calls" if reason == "stop" else reason
    choice = {"index": index, "message": message, "logprobs": None, "finish_reason": reason}
    if (stop := finish.stop_reason(end, stops)) is not None:
        choice["stop_reason"] = stop
    return choice


def _call(tool: Function, arguments: str) -> dict[str, Any]:
    return {"id": new_id("call_"), "type": "function", "function": {"name": tool.name, "arguments": arguments}}


def _head(body: ChatBody, visit: Visit, kind: str) -> dict[str, Any]:
    return {
        "id": new_id("chatcmpl-"),
        "object": kind,
        "created": int(time.time()),
        "model": body.model,
        **service_tier(body.service_tier, visit.key),
    }


def _stops(body: ChatBody) -> tuple[str, ...]:
    return (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())


async def _stream(visit: Visit, body: ChatBody, asks: list[Ask]) -> None:
    options = body.stream_options or bodies.StreamOptions()
    events = _Events(visit, body, Chunks(_head(body, visit, "chat.completion.chunk"), bool(options.include_usage)))
    exchange = visit.exchange
    async with aclosing(visit.answers(asks)) as pieces:
        async for index, piece in pieces:
            data = events.of(index, piece, bool(options.continuous_usage_stats))
            if not exchange.status:
                await exchange.start_stream()
            if data:
                await exchange.push(data)
    last = events.chunks.usage(visit.tally.usage()) if options.include_usage else b""
    await exchange.finish(last + DONE)


class _Events:
    """Pieces as chunks: each answer's first one brings its role."""

    def __init__(self, visit: Visit, body: ChatBody, chunks: Chunks) -> None:
        self.chunks = chunks
        self._visit = visit
        self._tool = chat_body.forced_tool(body)
        self._stops = _stops(body)
        self._begun: set[int] = set()

    def of(self, index: int, piece: Piece, with_usage: bool) -> bytes:
        usage = self._visit.tally.usage() if with_usage else None
        found = b""
        if index not in self._begun:
            self._begun.add(index)
            found = self.chunks.delta(index, self._opening(piece), usage)
        if piece.text:
            found += self.chunks.delta(index, self._delta(piece), usage)
        return found + self._end(index, piece, usage) if piece.finish else found

    def _opening(self, piece: Piece) -> bytes:
        if self._tool is None or piece.finish == "refused":
            return b'{"role":"assistant","content":""}'
        call = {"index": 0, **_call(self._tool, "")}
        return msgspec.json.encode({"role": "assistant", "content": None, "tool_calls": [call]})

    def _delta(self, piece: Piece) -> bytes:
        text = json_text(piece.text)
        if piece.finish == "refused":
            return b'{"content":%b,"refusal":%b}' % (text, text)
        if self._tool is not None:
            return b'{"tool_calls":[{"index":0,"function":{"arguments":%b}}]}' % text
        return b'{"content":%b}' % text

    def _end(self, index: int, piece: Piece, usage: dict[str, int] | None) -> bytes:
        reason = finish.OPENAI[piece.finish]
        if self._tool is not None and reason == "stop":
            reason = "tool_calls"
        more = {"system_fingerprint": fingerprint(piece), **(self._visit.details(piece) or {})}
        return self.chunks.end(index, reason, {}, finish.stop_reason(piece, self._stops), usage, more)
