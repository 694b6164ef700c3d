"""Closes the idle HTTP connections of a server that is stopping.

tritonserver waits for every open HTTP connection before it stops, those that a client merely keeps for its next request
included; a notebook or a load balancer would so cost the whole drain. A connection is idle if the last word was the
server's, and some seconds ago. Where this process may not look into the server (a container without that right),
nothing is closed and the stop takes longer.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

QUIET_MS = 5000  # a stream that is still written has at most fractions of a second between its pieces
_PIDFD_GETFD = 438
_LIBC = ctypes.CDLL(None, use_errno=True)
# struct tcp_info: milliseconds since the last data was sent and received, and the bytes received.
_LAST_SENT, _LAST_RECEIVED, _BYTES_RECEIVED = ("<I", 44), ("<I", 52), ("<Q", 128)
_TCP_INFO_BYTES = 136


def close_idle(pid: int, port: int) -> int:
    """Closes the idle connections of process `pid` to its own `port`; returns how many."""
    closed = 0
    for connection in _connections(pid, port):
        if is_idle(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
                closed += 1
    return closed


def is_idle(tcp_info: bytes) -> bool:
    """Whether the server has answered all that came, or nothing ever came."""
    if len(tcp_info) < _TCP_INFO_BYTES:  # a kernel that doesn't tell
        return False
    sent, received, count = (
        struct.unpack_from(kind, tcp_info, place)[0] for kind, place in (_LAST_SENT, _LAST_RECEIVED, _BYTES_RECEIVED)
    )
    # Both in the same millisecond may be an answer or the next question, and an answer is worth waiting for.
    return bool(received >= QUIET_MS and (count == 0 or QUIET_MS <= sent < received))


def _connections(pid: int, port: int) -> Iterator[socket.socket]:
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return
    try:
        for number in _sockets(pid):
            copy = _LIBC.syscall(_PIDFD_GETFD, process, number, 0)
            if copy < 0:
                continue
            with socket.socket(fileno=copy) as connection:
                if _is_connected_to(connection, port):
                    yield connection
    finally:
        os.close(process)


def _sockets(pid: int) -> list[int]:
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if os.readlink(link).startswith("socket:"):
                found.append(int(link.name))
    return found


def _is_connected_to(connection: socket.socket, port: int) -> bool:
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
        return False
    try:
        connection.getpeername()
    except OSError:  # it listens
        return False
    return bool(connection.getsockname()[1] == port)
