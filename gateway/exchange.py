"""One HTTP request and its response, over raw ASGI: body within limits, replies, events, a client that left."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from typing import Any

from gateway.failures import NotJson, TooLarge

Message = MutableMapping[str, Any]
Headers = Iterable[tuple[bytes, bytes]]
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_EVENT_STREAM = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
# Of a process that drains. Envoy heeds the second in any response, so that it need not wait for its next health check.
_LAST = [(b"connection", b"close"), (b"x-envoy-immediate-health-check-fail", b"true")]
_READ_AWAY = 16  # bodies of so many times the limit are still read, and thrown away
KEEP_ALIVE = b": keep-alive\n\n"


class ClientLeft(Exception):
    """Nobody reads what would be answered."""


class Exchange:
    """`cut` ends it from outside: for a body that doesn't come, or a reader that doesn't read."""

    def __init__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.began = time.monotonic()
        self.request_id = _request_id(self.headers.get(b"x-request-id", b""))
        self.status = 0  # once the response has begun
        self.is_stream = False
        self.has_left = False
        self.cut_while = ""  # what it was at when it was cut: "body" or "sending"
        self.waits_since: float | None = None  # for the client, as above
        self.sent_at = self.began
        self.sequence = 0  # of the next event, where events are numbered
        self.more_headers: list[tuple[bytes, bytes]] = []
        self.closes: Callable[[], bool] = lambda: False  # whether the connection is to end with the response
        self._transport = scope.get("transport")
        self._receive = receive
        self._send = send
        self.phase = ""
        self._is_over = False
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._watch: asyncio.Task[None] | None = None

    async def body(self, limit: int) -> bytes:
        """The whole JSON body. Raises NotJson, TooLarge or ClientLeft."""
        self._check_head(limit)
        self.phase, self.waits_since = "body", time.monotonic()
        parts, size, has_more = [], 0, True
        while has_more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft
            part = message.get("body", b"")
            size += len(part)
            if size <= limit:
                parts.append(part)
            # What is too large is read all the same, within reason: a client that still sends when the connection is
            # closed never sees why.
            elif size > _READ_AWAY * limit:
                break
            has_more = message.get("more_body", False)
        self.waits_since = None
        if size > limit:
            raise TooLarge(f"the body is larger than {limit} bytes")
        return b"".join(parts)

    def _check_head(self, limit: int) -> None:
        kind = self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            raise NotJson("the content type must be application/json")
        if self.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise NotJson("the body must not be compressed")
        length = self.headers.get(b"content-length", b"0")
        most = limit if b"expect" in self.headers else _READ_AWAY * limit
        if length.isdigit() and int(length) > most:
            raise TooLarge(f"the body has {int(length)} bytes; at most {limit} are taken")

    def watch(self) -> None:
        """From here on, a client that leaves cancels the task that answers it. Its body must have been read."""
        self._watch = asyncio.get_running_loop().create_task(self._await_leaving())

    async def _await_leaving(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._is_over:  # else this is how the server says that the response is complete
            self.has_left = True
            if self._task is not None:
                self._task.cancel()

    def cut(self) -> None:
        """Ends what waits for the client; a response that has begun is not ended properly."""
        self.cut_while = self.phase
        self.waits_since = None
        if self.phase == "sending" and self._transport is not None:
            self._transport.abort()
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        """The exchange is over, however it ended."""
        self._task = None
        if self._watch is not None:
            self._watch.cancel()

    async def reply(self, status: int, body: bytes, headers: Headers = (), kind: bytes = b"application/json") -> None:
        """The whole response."""
        own = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        await self._start(status, [*own, *headers])
        await self._push(body, False)

    async def start_stream(self, headers: Headers = ()) -> None:
        """Begins a 200 of server-sent events."""
        self.is_stream = True
        await self._start(200, [*_EVENT_STREAM, *headers])

    async def push(self, data: bytes) -> None:
        """Sends events; waits while the client takes none."""
        await self._push(data, True)

    async def finish(self, data: bytes = b"") -> None:
        """The last events, and the end of the response."""
        await self._push(data, False)

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        own = [(b"x-request-id", self.request_id.encode()), *self.more_headers]
        if self.closes():
            own += _LAST[1:] if _LAST[0] in headers else _LAST
        await self._send({"type": "http.response.start", "status": status, "headers": headers + own})

    async def _push(self, data: bytes, more: bool) -> None:
        if self.has_left:
            raise ClientLeft
        self.phase, self._is_over = "sending", not more
        self.sent_at = self.waits_since = time.monotonic()
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
        self.waits_since = None

    def is_silent(self, seconds: float) -> bool:
        """Whether it is a stream that has had nothing to send for so long."""
        is_open = self.is_stream and not self._is_over and self.waits_since is None
        return is_open and time.monotonic() - self.sent_at > seconds

    async def keep_alive(self) -> None:
        """A comment, lest a proxy take the stream for dead."""
        with suppress(ClientLeft):
            await self.push(KEEP_ALIVE)


def _request_id(given: bytes) -> str:
    text = given.decode("latin-1")
    return text if _REQUEST_ID.fullmatch(text) else uuid.uuid4().hex
