"""The sockets of a running server, as copies that this process holds too: what it listens on and who is connected.

Where this process may not look into the server (a container without CAP_SYS_PTRACE) there are none.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PIDFD_GETFD = 438
ACCEPT_S = 1.0  # until a server has accepted who waits, before it is not waited for any more
_UNACKED, _TCP_INFO_BYTES = ("<I", 24), 28  # of struct tcp_info
_LIBC = ctypes.CDLL(None, use_errno=True)


def connections(pid: int, port: int) -> Iterator[socket.socket]:
    """The connections of clients to `port` of process `pid`; each copy is closed when the next is asked for."""
    for copy in _copies(pid):
        if _port(copy) == port and not _listens(copy) and _is_connected(copy):
            yield copy


@contextmanager
def listeners(pid: int, port: int) -> Iterator[list[socket.socket]]:
    """What process `pid` listens on at `port`; the copies are closed at the end of the block."""
    # Not socket.dup: it makes the copy blocking and with it the server's own socket, whose threads then hang in accept.
    found = [
        socket.socket(fileno=os.dup(copy.fileno())) for copy in _copies(pid) if _port(copy) == port and _listens(copy)
    ]
    try:
        yield found
    finally:
        for copy in found:
            copy.close()


def stop_listening(pid: int, port: int) -> bool:
    """Has process `pid` take no new connections at `port`, and keep those that it has; whether that could be done.

    For gRPC's ports: it says so in its log and rests. Triton's HTTP server asks its socket again without a pause.
    """
    with listeners(pid, port) as found:
        for listener in found:
            end = time.monotonic() + ACCEPT_S
            # Who waits to be let in would be cut off, after having sent a request.
            while _waiting(listener) and time.monotonic() < end:
                time.sleep(0.001)
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
        return bool(found)


def _waiting(listener: socket.socket) -> int:
    """Connections that have not been accepted yet."""
    info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    kind, place = _UNACKED
    return int(struct.unpack_from(kind, info, place)[0]) if len(info) == _TCP_INFO_BYTES else 0


def _copies(pid: int) -> Iterator[socket.socket]:
    """Every TCP socket of the process, each closed when the next is asked for."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return
    try:
        for number in _numbers(pid):
            copy = _LIBC.syscall(_PIDFD_GETFD, process, number, 0)
            if copy < 0:
                continue
            with socket.socket(fileno=copy) as found:
                if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                    yield found
    finally:
        os.close(process)


def _numbers(pid: int) -> list[int]:
    found = []
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if os.readlink(link).startswith("socket:"):
                    found.append(int(link.name))
    return found


def _port(found: socket.socket) -> int:
    return int(found.getsockname()[1])


def _listens(found: socket.socket) -> bool:
    return bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _is_connected(found: socket.socket) -> bool:
    try:
        found.getpeername()
    except OSError:
        return False
    return True
