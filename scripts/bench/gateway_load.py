"""Requests through the gateway and directly by gRPC, each timed; no client library between."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from gateway.ask import Ask, piece_of, request_of
from gateway.triton import Triton

PROMPT = "Tell me a story about the sea."


@dataclass
class Answers:
    """Seconds of each answer, and to its first piece; events and tokens of all."""

    seconds: list[float] = field(default_factory=list)
    first_seconds: list[float] = field(default_factory=list)
    events: int = 0
    tokens: int = 0
    total_s: float = 0.0

    def note(self, began: float, first: float | None) -> None:
        now = time.perf_counter()
        self.seconds.append(now - began)
        self.first_seconds.append((first or now) - began)


class ByGrpc:
    """`fills`: every answer has max_tokens, for an engine that would end sooner."""

    def __init__(self, target: str, fills: bool = False) -> None:
        self._triton = Triton(target)
        self._fills = fills

    async def one(self, max_tokens: int, stream: bool, found: Answers) -> None:
        began, first = time.perf_counter(), None
        more = {"min_tokens": max_tokens} if self._fills else {}
        request = request_of(Ask(PROMPT, False, max_tokens, stream, more), f"bench-{began}", "", 300)
        async for response in self._triton.stream(request, 300):
            piece = piece_of(response)
            first = first or time.perf_counter()
            found.events += 1
            found.tokens += piece.tokens
        found.note(began, first)

    async def close(self) -> None:
        await self._triton.close()


class ByHttp:
    """Keeps its connections, as clients do. `fills` as above."""

    def __init__(self, port: int, fills: bool = False) -> None:
        self._port = port
        self._more = {"ignore_eos": True} if fills else {}
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def one(self, max_tokens: int, stream: bool, found: Answers) -> None:
        connection = await self._connection()
        reader, writer = connection
        asked = {"model": "auto", "prompt": PROMPT, "max_tokens": max_tokens, "stream": stream, **self._more}
        body = json.dumps(asked).encode()
        began, first = time.perf_counter(), None
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(head.decode())
        if stream:
            while size := int(await reader.readuntil(b"\r\n"), 16):
                chunk = (await reader.readexactly(size + 2))[:-2]
                first = first or time.perf_counter()
                found.events += chunk.count(b"\n\n")
            await reader.readexactly(2)
        else:
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            found.tokens += json.loads(await reader.readexactly(length))["usage"]["completion_tokens"]
            found.events += 1
        found.note(began, first)
        self._idle.append(connection)

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection("127.0.0.1", self._port)

    async def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


One = Callable[[int, bool, Answers], Awaitable[None]]


async def load(one: One, count: int, at_a_time: int, max_tokens: int, stream: bool) -> Answers:
    """So many answers, so many at a time."""
    found, left = Answers(), iter(range(count))

    async def worker() -> None:
        for _ in left:
            await one(max_tokens, stream, found)

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(at_a_time)))
    found.total_s = time.perf_counter() - began
    return found


async def in_turn(ways: Mapping[str, One], count: int, max_tokens: int, stream: bool) -> dict[str, Answers]:
    """So many answers by each way, one at a time, the ways in turn: what the machine does else meets all alike."""
    found = {name: Answers() for name in ways}
    for _ in range(count):
        for name, one in ways.items():
            await one(max_tokens, stream, found[name])
    return found
