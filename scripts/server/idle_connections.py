"""Closes the idle HTTP connections of a server that is stopping.

tritonserver waits for every open HTTP connection before it stops, those that a client merely keeps for its next request
included; a notebook or a load balancer would so cost the whole drain. A connection is idle if the last word was the
server's, and some seconds ago. Where this process may not look into the server (a container without that right),
nothing is closed and the stop takes longer.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

from scripts.server import server_sockets

QUIET_MS = 5000  # a stream that is still written has at most fractions of a second between its pieces
# struct tcp_info: milliseconds since the last data was sent and received, and the bytes received.
_LAST_SENT, _LAST_RECEIVED, _BYTES_RECEIVED = ("<I", 44), ("<I", 52), ("<Q", 128)
_TCP_INFO_BYTES = 136


def close_idle(pid: int, port: int, quiet_ms: int | None = None) -> int:
    """Closes the idle connections of process `pid` to its own `port`; returns how many."""
    closed = 0
    for connection in server_sockets.connections(pid, port):
        if is_idle(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES), quiet_ms):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
                closed += 1
    return closed


def count_busy(pid: int, port: int, quiet_ms: int) -> int:
    """How many connections of process `pid` to its own `port` wait for an answer, or had one in the last moment."""
    infos = [
        connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        for connection in server_sockets.connections(pid, port)
    ]
    return sum(not is_idle(info, quiet_ms) for info in infos)


def is_idle(tcp_info: bytes, quiet_ms: int | None = None) -> bool:
    """Whether the server has answered all that came, or nothing ever came; both `quiet_ms` ago (QUIET_MS)."""
    quiet_ms = QUIET_MS if quiet_ms is None else quiet_ms
    if len(tcp_info) < _TCP_INFO_BYTES:  # a kernel that doesn't tell
        return False
    sent, received, count = (
        struct.unpack_from(kind, tcp_info, place)[0] for kind, place in (_LAST_SENT, _LAST_RECEIVED, _BYTES_RECEIVED)
    )
    # Both in the same millisecond may be an answer or the next question, and an answer is worth waiting for.
    return bool(received >= quiet_ms and (count == 0 or quiet_ms <= sent < received))
