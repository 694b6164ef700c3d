"""/v1/responses, as far as it goes without a memory: text in, text out, nothing stored."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import Any

import msgspec

from gateway import chat_body, finish
from gateway.ask import Ask, Piece
from gateway.chat_chunks import json_text
from gateway.responses_body import ResponsesBody, ask_of, max_tokens_of, read
from gateway.visit import Visit, estimate, new_id

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


async def create(visit: Visit) -> None:
    raw = await visit.read_body()
    body = read(raw)
    ask = ask_of(visit, body)
    visit.admit(1, estimate(raw, max_tokens_of(body), 1))
    rest = "input" if isinstance(body.input, str) else "input[]"
    with chat_body.names_of(rest, "instructions" if body.instructions else ""):
        await _answer(visit, body, ask)


async def _answer(visit: Visit, body: ResponsesBody, ask: Ask) -> None:
    response = _Response(body)
    if body.stream:
        await _stream(visit, response, ask)
        return
    (text,), (end,) = await visit.whole([ask])
    await visit.exchange.reply(200, msgspec.json.encode(response.ended(text, end, visit)))


class _Response:
    """The object as it is at each moment of its life."""

    def __init__(self, body: ResponsesBody) -> None:
        self.item_id = new_id("msg_")
        self._body = body
        self._head = {"id": new_id("resp_"), "object": "response", "created_at": int(time.time())}

    def begun(self) -> dict[str, Any]:
        return self._with("in_progress", [], None, None)

    def ended(self, text: str, end: Piece, visit: Visit) -> dict[str, Any]:
        """Completed, or incomplete and why."""
        why = _INCOMPLETE.get(finish.OPENAI[end.finish])
        tally = visit.tally
        usage = {
            "input_tokens": tally.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": tally.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tally.total_tokens,
        }
        status = "incomplete" if why else "completed"
        return self._with(status, [self.item(status, text)], {"reason": why} if why else None, usage)

    def item(self, status: str, text: str | None) -> dict[str, Any]:
        content = [] if text is None else [part(text)]
        return {"id": self.item_id, "type": "message", "role": "assistant", "status": status, "content": content}

    def _with(
        self, status: str, output: list[Any], incomplete: dict[str, Any] | None, usage: dict[str, Any] | None
    ) -> dict[str, Any]:
        body = self._body
        return {
            **self._head,
            "status": status,
            "error": None,
            "incomplete_details": incomplete,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "model": body.model,
            "output": output,
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "store": False,
            "temperature": body.temperature,
            "text": {"format": {"type": "text"} if body.text is None else body.text.format or {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "top_p": body.top_p,
            "truncation": "disabled",
            "metadata": body.metadata or {},
            **({"usage": usage} if usage else {}),
        }


def part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


async def _stream(visit: Visit, response: _Response, ask: Any) -> None:
    events, exchange = _Events(response), visit.exchange
    text, end = "", Piece()
    async with aclosing(visit.answers([ask])) as pieces:
        async for _, piece in pieces:
            data = b""
            if not exchange.status:
                await exchange.start_stream()
                data = events.opening()
            text, end = text + piece.text, piece
            await exchange.push(data + (events.delta(piece.text) if piece.text else b""))
            exchange.sequence = events.number
    await exchange.finish(events.closing(text, end, visit))


class _Events:
    """Every one with its number."""

    def __init__(self, response: _Response) -> None:
        self.number = 0
        self._response = response
        self._place = {"item_id": response.item_id, "output_index": 0, "content_index": 0}
        self._delta_head = b'"item_id":%b,"output_index":0,"content_index":0,"logprobs":[]' % json_text(
            response.item_id
        )

    def event(self, kind: str, **fields: Any) -> bytes:
        body = {"type": kind, "sequence_number": self.number, **fields}
        self.number += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(body))

    def opening(self) -> bytes:
        begun = self._response.begun()
        return b"".join(
            (
                self.event("response.created", response=begun),
                self.event("response.in_progress", response=begun),
                self.event("response.output_item.added", output_index=0, item=self._response.item("in_progress", None)),
                self.event("response.content_part.added", **self._place, part=part("")),
            )
        )

    def delta(self, text: str) -> bytes:
        kind = b"response.output_text.delta"
        found = b'event: %b\ndata: {"type":"%b","sequence_number":%d,%b,"delta":%b}\n\n' % (
            kind, kind, self.number, self._delta_head, json_text(text),
        )  # fmt: skip
        self.number += 1
        return found

    def closing(self, text: str, end: Piece, visit: Visit) -> bytes:
        response = self._response.ended(text, end, visit)
        status = response["status"]
        return b"".join(
            (
                self.event("response.output_text.done", **self._place, text=text, logprobs=[]),
                self.event("response.content_part.done", **self._place, part=part(text)),
                self.event("response.output_item.done", output_index=0, item=self._response.item(status, text)),
                self.event(f"response.{status}", response=response),
            )
        )
