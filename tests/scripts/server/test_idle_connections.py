from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from scripts.server import idle_connections


def tcp_info(sent_ms: int, received_ms: int, bytes_received: int) -> bytes:
    info = bytearray(136)
    struct.pack_into("<I", info, 44, sent_ms)
    struct.pack_into("<I", info, 52, received_ms)
    struct.pack_into("<Q", info, 128, bytes_received)
    return bytes(info)


@pytest.mark.parametrize(
    ("info", "idle"),
    [
        (tcp_info(sent_ms=6000, received_ms=6001, bytes_received=90), True),
        (tcp_info(sent_ms=4000, received_ms=9000, bytes_received=90), False),  # a stream that was written to just now
        (tcp_info(sent_ms=9000, received_ms=6000, bytes_received=90), False),  # a request that waits for its answer
        (tcp_info(sent_ms=6000, received_ms=6000, bytes_received=90), False),  # the next question came at once, perhaps
        (tcp_info(sent_ms=2**31, received_ms=6000, bytes_received=0), True),  # nothing was ever asked
        (tcp_info(sent_ms=2**31, received_ms=100, bytes_received=0), False),  # nothing yet
        (b"too short", False),
    ],
)
def test_a_connection_is_idle_if_the_last_word_was_the_servers_and_is_old(info, idle):
    assert idle_connections.is_idle(info) is idle


@contextmanager
def connection() -> Iterator[tuple[socket.socket, socket.socket, int]]:
    """The client's end, the server's end, and the server's port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, listener.accept()[0] as server:
            yield client, server, port


def test_closes_what_is_idle_and_leaves_what_waits_for_an_answer(monkeypatch):
    monkeypatch.setattr(idle_connections, "QUIET_MS", 20)
    with connection() as (answered, its_server, port), connection() as (waiting, _, other_port):
        answered.sendall(b"question")
        waiting.sendall(b"question")
        time.sleep(0.05)
        its_server.sendall(b"answer")
        time.sleep(0.05)
        assert idle_connections.close_idle(os.getpid(), other_port) == 0
        assert idle_connections.close_idle(os.getpid(), port) >= 1
        assert answered.recv(6) == b"answer"
        assert answered.recv(1) == b""


def test_a_process_that_is_gone_has_no_connections():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert idle_connections.close_idle(child, 8000) == 0
