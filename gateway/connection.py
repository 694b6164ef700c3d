"""uvicorn's HTTP/1.1 connection, with the limits that it leaves out: of a request's head, of the time that the head may
take, and of how many connections there are."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.settings import Settings

MAX_HEAD_BYTES = 16 << 10
MAX_HEADERS = 100
_IDLE_S = 1.0
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def protocol(settings: Settings) -> type[HttpToolsProtocol]:
    """The connection's class, for uvicorn's configuration."""

    class Connection(_Connection):
        head_s = settings.head_s
        most = settings.max_connections

    return Connection


def _look_for_the_dead(connection: Any) -> None:
    """Has the kernel close a connection whose client is gone without a word, after half a minute at most."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


class _Connection(HttpToolsProtocol):
    head_s: float
    most: int

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        _look_for_the_dead(transport.get_extra_info("socket"))
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._answered_at = 0.0
        if len(self.connections) > self.most:
            self._refuse(_TOO_MANY)
        else:
            self._await_head()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._head_bytes >= 0:
            self._head_bytes += len(data)
            if self._head_timer is None:
                self._await_head()
        super().data_received(data)
        # The head is counted in whole reads, so what of the body came with it must not be: it ends the count.
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["transport"] = self.transport  # type: ignore[typeddict-unknown-key]

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            self._refuse(_TOO_LARGE)

    def on_headers_complete(self) -> None:
        self._head_bytes = -1
        self._end_wait()
        if not self.transport.is_closing():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self.cycle is not None:  # else the head was refused
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        if self.cycle is not None:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._answered_at = self.loop.time()

    def close_if_idle(self) -> None:
        """In a drain: so that the client asks elsewhere. A request that may be on its way is waited for."""
        cycle: Any = self.cycle  # none before the first request
        if cycle is None or self._head_bytes:
            return
        if not cycle.response_complete or self.loop.time() - self._answered_at > _IDLE_S:
            self.shutdown()  # where a response runs, it is the connection's last

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_s, self.transport.abort)

    def _end_wait(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, response: bytes) -> None:
        self._end_wait()
        if not self.transport.is_closing():
            self.transport.write(response)
            self.transport.close()
