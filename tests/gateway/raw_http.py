"""HTTP by hand, for what no well-behaved client sends."""

from __future__ import annotations

import socket
from contextlib import suppress

DEADLINE_S = 60


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), DEADLINE_S)


def read_to_end(connection: socket.socket) -> bytes:
    """Whatever comes until the other side closes; a reset is an end too."""
    found = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            found += part
    return found


def exchange(port: int, data: bytes) -> bytes:
    """What comes back before the connection is closed."""
    with connect(port) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(data)
        return read_to_end(connection)
