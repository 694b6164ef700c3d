"""Clients that ask for an answer and leave: in mid-stream, before anything came, by FIN or by RST."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

_HEAD = (
    b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
)


async def abandon(port: int, count: int, at_a_time: int, body: Mapping[str, Any]) -> None:
    """So many requests, each left in one of six ways."""
    ways = itertools.cycle(itertools.product((True, False), ("first", "nothing", "half")))
    left = iter(range(count))

    async def leave_all() -> None:
        for _ in left:
            stream, when = next(ways)
            await _leave({**body, "stream": stream}, port, when if stream else "nothing", resets=next(ways)[0])

    await asyncio.gather(*(leave_all() for _ in range(at_a_time)))


async def _leave(body: Mapping[str, Any], port: int, when: str, resets: bool) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    request = _HEAD % len(data) + data
    writer.write(request[: -len(data) // 2] if when == "half" else request)
    await writer.drain()
    if when == "first":
        await reader.readuntil(b"data: ")
    if resets:
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()
