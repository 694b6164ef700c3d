"""Decides which of two servers on one port gets the new connections.

Servers that listen with SO_REUSEPORT share a port; the kernel keeps their sockets in the order in which they began to
listen, and asks a filter of the group, if it has one, for the place of the socket that a connection goes to. A place
that does not exist lets the kernel choose among all. So the server behind gets nothing until it is wanted, the one in
front loses nothing that it has accepted, and when the one in front dies, the next one stands in its places.
(A shutdown of the old one's listening sockets would do too, but tritonserver then writes warnings by the thousand.)
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Sequence

from scripts.server import server_sockets

_SO_ATTACH_REUSEPORT_CBPF = 51
# Classic BPF: load the connection's hash (SKF_AD_OFF + SKF_AD_RXHASH), take it modulo, add, return.
_LOAD_HASH = (0x20, 0xFFFFF000 + 32)
_MODULO, _ADD, _RETURN = 0x94, 0x04, 0x16


def count(pid: int, port: int) -> int:
    """How many sockets process `pid` listens with on `port`; 0 where this process may not look into it."""
    with server_sockets.listeners(pid, port) as found:
        return len(found)


def prefer_first(pid: int, ports: Sequence[int]) -> bool:
    """New connections go to process `pid`, which has listened longest on each port; whether that could be said."""
    done = [_prefer(pid, port, 0) for port in ports]
    return all(done)


def prefer_second(first: int, second: int, ports: Sequence[int]) -> bool:
    """New connections go to process `second`, which listens behind `first`."""
    done = [_prefer(second, port, count(first, port)) for port in ports]
    return all(done)


def _prefer(pid: int, port: int, ahead: int) -> bool:
    with server_sockets.listeners(pid, port) as found:
        if not found:
            return False
        return _attach(found[0], ahead, len(found))


def _attach(listener: socket.socket, ahead: int, sockets: int) -> bool:
    steps = (_LOAD_HASH, (_MODULO, sockets), (_ADD, ahead), (_RETURN, 0))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", step, 0, 0, value) for step, value in steps))
    try:
        listener.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, struct.pack("@HP", len(steps), ctypes.addressof(code))
        )
    except OSError:
        return False
    return True
