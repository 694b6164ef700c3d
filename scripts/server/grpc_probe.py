"""Asks a server's gRPC endpoint one thing, with nothing but a socket: whether its handler of streams answers at all.

The request names no model, so the server refuses it by itself. It has a stream and a connection of its own, and ends
with the client's half-close: requests of different fates on one stream, and cancelled streams, harm tritonserver 2.51.
"""

from __future__ import annotations

import socket
import struct

_PATH = b"/inference.GRPCInferenceService/ModelStreamInfer"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_POST, _HTTP = b"\x83", b"\x86"  # HPACK's static table: ":method: POST", ":scheme: http"
_EMPTY_MESSAGE = bytes(5)  # not compressed, no bytes


def is_answered(host: str, port: int, timeout_s: float) -> bool:
    """Whether anything came back on the request's own stream. Raises OSError where there is no server."""
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(_request(f"{host}:{port}".encode()))
        received = b""
        try:
            while True:
                kind, flags, stream, received = _next_frame(connection, received)
                if stream == 1:
                    return True
                if kind == _SETTINGS and not flags & _ACK:
                    connection.sendall(_frame(_SETTINGS, _ACK, 0, b""))
        except TimeoutError:
            return False


def _request(authority: bytes) -> bytes:
    headers = {b":path": _PATH, b":authority": authority, b"content-type": b"application/grpc", b"te": b"trailers"}
    # Each literal, to be kept in no table, with a name of its own: one byte of 0 before it.
    block = _POST + _HTTP + b"".join(b"\0" + _text(name) + _text(value) for name, value in headers.items())
    return b"".join(
        [
            _PREFACE,
            _frame(_SETTINGS, 0, 0, b""),
            _frame(_HEADERS, _END_HEADERS, 1, block),
            _frame(_DATA, _END_STREAM, 1, _EMPTY_MESSAGE),
        ]
    )


def _text(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _next_frame(connection: socket.socket, received: bytes) -> tuple[int, int, int, bytes]:
    """Kind, flags and stream of the next frame, and what was received beyond it."""
    while len(received) < 9 or len(received) < 9 + int.from_bytes(received[:3], "big"):
        more = connection.recv(65536)
        if not more:
            raise ConnectionResetError("the server closed the connection")
        received += more
    length = 9 + int.from_bytes(received[:3], "big")
    kind, flags, stream = struct.unpack(">BBI", received[3:9])
    return kind, flags, stream & 0x7FFFFFFF, received[length:]
