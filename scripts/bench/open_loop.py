"""Streams asked of llm_router at a given rate over HTTP, whether or not the server keeps up, with the time of each.

One thread reads all connections and the bytes are made beforehand, since a client's own work would otherwise be
measured: on a machine that also runs the server, even a few milliseconds a request are a good part of its capacity.
"""

from __future__ import annotations

import json
import random
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PATIENCE_SECONDS = 60.0  # After the last request was sent.


@dataclass
class Sample:
    """One request; seconds since it was due. `error` is the server's message, or what became of the connection."""

    due_s: float
    first_s: float | None = None
    ended_s: float | None = None
    error: str = ""

    @property
    def is_answered(self) -> bool:
        return self.ended_s is not None and not self.error


def request_bytes(host: str, body: Mapping[str, Any]) -> bytes:
    """POST /generate_stream of llm_router."""
    text = json.dumps({"stream": True, **body}).encode()
    head = f"POST /v2/models/llm_router/generate_stream HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(text)}\r\n\r\n"
    return head.encode() + text


def run(host: str, requests: Sequence[bytes], rate: float, seed: int = 1) -> list[Sample]:
    """Sends `requests` at random times (Poisson), `rate` a second in the mean, and waits for the end of each."""
    chance = random.Random(seed)
    due, samples = 0.0, []
    for _ in requests:
        samples.append(Sample(due))
        due += chance.expovariate(rate)
    with selectors.DefaultSelector() as selector:
        _Sending(host, selector).run(requests, samples)
    return samples


class _Sending:
    def __init__(self, host: str, selector: selectors.BaseSelector) -> None:
        address, port = host.split(":")
        self._address = address, int(port)
        self._selector = selector
        self._idle: list[_Connection] = []

    def run(self, requests: Sequence[bytes], samples: Sequence[Sample]) -> None:
        begin = time.perf_counter()
        sent, open_ones = 0, 0
        end = begin + samples[-1].due_s + PATIENCE_SECONDS
        while sent < len(samples) or open_ones:
            now = time.perf_counter()
            while sent < len(samples) and begin + samples[sent].due_s <= now:
                connection = self._idle.pop() if self._idle else self._connect()
                connection.send(requests[sent], samples[sent], begin)
                sent, open_ones = sent + 1, open_ones + 1
            until = begin + samples[sent].due_s if sent < len(samples) else end
            if now >= end:
                break
            for key, _ in self._selector.select(max(0.0, until - time.perf_counter())):
                open_ones -= self._read(key.data)
        for key in list(self._selector.get_map().values()):
            key.data.give_up()
            self._close(key.data)

    def _connect(self) -> _Connection:
        connection = _Connection(socket.create_connection(self._address))
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)
        return connection

    def _read(self, connection: _Connection) -> bool:
        """Whether a request ended."""
        if not connection.read():
            return False
        if connection.is_closed:
            self._close(connection)
        else:
            self._idle.append(connection)
        return True

    def _close(self, connection: _Connection) -> None:
        self._selector.unregister(connection.socket)
        connection.socket.close()


class _Connection:
    """One request at a time; the server answers in chunks, errors with a length."""

    def __init__(self, opened: socket.socket) -> None:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = opened
        self.is_closed = False
        self._sample: Sample | None = None
        self._begin = 0.0
        self._received = b""

    def send(self, request: bytes, sample: Sample, begin: float) -> None:
        self._sample, self._begin, self._received = sample, begin, b""
        self.socket.sendall(request)

    def give_up(self) -> None:
        if self._sample is not None:
            self._sample.error, self._sample = "no answer", None

    def read(self) -> bool:
        """Takes what came; whether the request has ended by it."""
        try:
            received = self.socket.recv(1 << 16)
        except OSError:
            received = b""
        sample = self._sample
        if sample is None:  # Closed by the server while nobody asked.
            self.is_closed = not received
            return False
        now_s = time.perf_counter() - self._begin - sample.due_s
        self._received += received
        if sample.first_s is None and b"data: " in self._received:
            sample.first_s = now_s
        if not received:
            sample.error, self.is_closed = "the connection broke", True
        elif not _is_whole(self._received):
            return False
        sample.ended_s, self._sample = now_s, None
        sample.error = sample.error or _error(self._received)
        return True


def _is_whole(received: bytes) -> bool:
    head, separator, body = received.partition(b"\r\n\r\n")
    if not separator:
        return False
    if b"\r\ntransfer-encoding: chunked" in head.lower():
        return body.endswith(b"0\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
    return len(body) >= int(length)


def _error(received: bytes) -> str:
    """The message of the first error in an answer."""
    at = received.find(b'{"error":')
    if at >= 0:
        message: str = json.JSONDecoder().raw_decode(received[at:].decode(errors="replace"))[0]["error"]
        return message
    if b'"finish_reason":"engine_error"' in received:
        return "engine_error"
    return "" if b" 200 " in received.split(b"\r\n", 1)[0] else received[:100].decode(errors="replace")
