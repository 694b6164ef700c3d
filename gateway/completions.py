"""/v1/completions: plain prompts, without a chat template."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import Any

import msgspec

from gateway import body as bodies
from gateway import finish
from gateway.ask import WHAT_FITS, Ask, Piece
from gateway.body import SamplingBody
from gateway.chat_chunks import DONE, Chunks
from gateway.failures import BadRequest
from gateway.visit import Visit, estimate, fingerprint, new_id

MAX_ANSWERS = 32


class CompletionBody(SamplingBody, kw_only=True, forbid_unknown_fields=True):
    prompt: str | list[Any]
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None
    logprobs: int | None = None
    response_format: Any = None


_DECODER = msgspec.json.Decoder(CompletionBody)


async def create(visit: Visit) -> None:
    raw = await visit.read_body()
    body = read(raw)
    prompts = _prompts(body)
    answers = body.n or 1
    if len(prompts) * answers > MAX_ANSWERS:
        raise BadRequest(f"prompts times n is {len(prompts) * answers}; at most {MAX_ANSWERS} are taken", "prompt")
    asks = _asks(visit, body, prompts)
    visit.admit(len(asks), estimate(raw, body.limit, len(asks)), answers)
    if body.stream:
        await _stream(visit, body, asks)
    else:
        await _whole(visit, body, asks)


def read(raw: bytes) -> CompletionBody:
    """Raises BadRequest."""
    body = bodies.decode(raw, _DECODER)
    if body.logprobs is not None:
        raise BadRequest("logprobs are not supported: they would tell the words that the filter masks", "logprobs")
    if body.best_of not in (None, 1):
        raise BadRequest("best_of must be 1; n gives several answers", "best_of")
    if body.suffix:
        raise BadRequest("suffix is not supported", "suffix")
    if body.response_format is not None:
        raise BadRequest("response_format is for /v1/chat/completions", "response_format")
    return body


def _prompts(body: CompletionBody) -> list[str]:
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    if not prompts:
        raise BadRequest("prompt is empty", "prompt")
    if not all(isinstance(prompt, str) for prompt in prompts):
        raise BadRequest("prompt must be a string or a list of strings; token ids are not taken", "prompt")
    if not all(prompts):
        raise BadRequest("prompt is empty" if len(prompts) == 1 else "prompt holds an empty string", "prompt")
    return prompts


def _asks(visit: Visit, body: CompletionBody, prompts: list[str]) -> list[Ask]:
    inputs = bodies.sampling(body)
    if body.echo:
        inputs["exclude_input_in_output"] = False
    tier, user = visit.tier(body.model), bodies.user_of(body)
    priority = bodies.priority_of(body.service_tier, visit.key.priority)
    found = []
    for prompt in prompts:
        for number in range(body.n or 1):
            more = {**inputs, "seed": (body.seed + number) % 2**64} if body.seed is not None else inputs
            limit = body.limit or WHAT_FITS
            found.append(Ask(prompt, False, limit, bool(body.stream), more, tier, user, priority))
    return found


def _head(body: CompletionBody) -> dict[str, Any]:
    return {
        "id": new_id("cmpl-"),
        "object": "text_completion",
        "created": int(time.time()),
        "model": body.model,
    }


def _choice(index: int, text: str, end: Piece, body: CompletionBody) -> dict[str, Any]:
    reason = finish.OPENAI[end.finish]
    choice: dict[str, Any] = {"index": index, "text": text, "logprobs": None, "finish_reason": reason}
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    if (stop := finish.stop_reason(end, stops)) is not None:
        choice["stop_reason"] = stop
    return choice


async def _whole(visit: Visit, body: CompletionBody, asks: list[Ask]) -> None:
    texts, ends = await visit.whole(asks)
    answer = {
        **_head(body),
        "system_fingerprint": fingerprint(ends[0]) or "",
        "choices": [_choice(index, texts[index], ends[index], body) for index in range(len(asks))],
        "usage": visit.tally.usage(),
        **(visit.details(ends[0]) or {}),
    }
    await visit.exchange.reply(200, msgspec.json.encode(answer))


async def _stream(visit: Visit, body: CompletionBody, asks: list[Ask]) -> None:
    options = body.stream_options or bodies.StreamOptions()
    chunks, exchange = Chunks(_head(body), bool(options.include_usage)), visit.exchange
    async with aclosing(visit.answers(asks)) as pieces:
        async for index, piece in pieces:
            if not exchange.status:
                await exchange.start_stream()
            if not (piece.text or piece.finish):
                continue
            usage = visit.tally.usage() if options.continuous_usage_stats else None
            if piece.finish:
                await exchange.push(chunks.choice(_choice(index, piece.text, piece, body), usage))
            else:
                await exchange.push(chunks.text(index, piece.text, usage))
    last = chunks.usage(visit.tally.usage()) if options.include_usage else b""
    await exchange.finish(last + DONE)
