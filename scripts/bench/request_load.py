"""Whole requests to a Triton server over HTTP, from many connections at once, each sending its next when answered.

The bytes of each request are made before the clock starts, and one thread reads all connections: on a machine that
also runs the server, a client's own work would otherwise be measured.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

_TYPES = {"i8": "INT64", "i4": "INT32", "f4": "FP32"}


@dataclass(frozen=True)
class Load:
    """What a measured time gave: `latencies_s` of the requests that were answered within it."""

    seconds: float
    latencies_s: tuple[float, ...]

    @property
    def per_second(self) -> float:
        return len(self.latencies_s) / self.seconds

    def latency_ms(self, percent: float) -> float:
        return float(np.percentile(self.latencies_s, percent)) * 1000 if self.latencies_s else 0.0


def request_bytes(host: str, model: str, tensors: Mapping[str, np.ndarray[Any, Any]], outputs: Sequence[str]) -> bytes:
    """One POST to /infer; texts as JSON, numbers as Triton's binary data. The outputs come back as binary data."""
    listed, binary = [], b""
    for name, array in tensors.items():
        entry: dict[str, Any] = {"name": name, "shape": list(array.shape)}
        if array.dtype.kind == "O":
            entry |= {"datatype": "BYTES", "data": [text.decode() for text in array.reshape(-1)]}
        else:
            data = array.tobytes()
            entry |= {"datatype": _TYPES[array.dtype.str[1:]], "parameters": {"binary_data_size": len(data)}}
            binary += data
        listed.append(entry)
    wanted = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
    head = json.dumps({"inputs": listed, "outputs": wanted}).encode()
    lines = (
        f"POST /v2/models/{model}/infer HTTP/1.1",
        f"Host: {host}",
        f"Inference-Header-Content-Length: {len(head)}",
        f"Content-Length: {len(head) + len(binary)}",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + head + binary


def run(host: str, requests: Sequence[bytes], connections: int, warm_up_s: float, measured_s: float) -> Load:
    """Sends `requests` in turn, over and over. Raises RuntimeError for an answer that isn't a success."""
    upcoming = cycle(requests)
    address, port = host.split(":")
    latencies = []
    with selectors.DefaultSelector() as selector, ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_connection((address, int(port)))) for _ in range(connections)]
        begin = time.perf_counter() + warm_up_s
        end = begin + measured_s
        for connection in map(_Connection, sockets):
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send(next(upcoming))
        waiting = connections
        while waiting:
            ready = selector.select(timeout=60)
            if not ready:
                raise RuntimeError("no answer within a minute")
            for key, _ in ready:
                connection = key.data
                if not connection.read():
                    continue
                now = time.perf_counter()
                if begin <= now <= end:
                    latencies.append(now - connection.sent)
                if now < end:
                    connection.send(next(upcoming))
                else:
                    waiting -= 1
                    selector.unregister(connection.socket)
    return Load(measured_s, tuple(latencies))


class _Connection:
    def __init__(self, opened: socket.socket) -> None:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = opened
        self.sent = 0.0
        self._received = b""

    def send(self, request: bytes) -> None:
        self.sent = time.perf_counter()
        self.socket.sendall(request)

    def read(self) -> bool:
        """Whether the answer is complete now."""
        received = self.socket.recv(1 << 16)
        if not received:
            raise RuntimeError("the server closed a connection")
        self._received += received
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator:
            return False
        fields = head.decode().split("\r\n")
        length = next(int(each.split(":")[1]) for each in fields if each.lower().startswith("content-length:"))
        if len(body) < length:
            return False
        if " 200 " not in fields[0]:
            raise RuntimeError(f"{fields[0]}: {body[:300].decode(errors='replace')}")
        self._received = body[length:]
        return True
