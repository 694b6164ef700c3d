"""Two processes on one port, and who of them gets the connections."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from scripts.server import server_sockets, steering

# Listens with as many sockets as told; answers each connection with its number of process.
LISTENER = """
import os, selectors, socket, sys
port, sockets = int(sys.argv[1]), int(sys.argv[2])
wait = selectors.DefaultSelector()
for _ in range(sockets):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.setblocking(False)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    wait.register(listener, selectors.EVENT_READ)
print("listens", flush=True)
while True:
    for key, _ in wait.select():
        connection, _ = key.fileobj.accept()
        connection.sendall(str(os.getpid()).encode())
        connection.close()
"""


@contextmanager
def listening(port: int, sockets: int = 1) -> Iterator[int]:
    """The number of a process that listens at `port`."""
    command = [sys.executable, "-c", LISTENER, str(port), str(sockets)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"listens\n"
        try:
            yield child.pid
        finally:
            child.kill()


def reserved_port() -> socket.socket:
    """Bound but not listening: nobody else gets the port, and it gets no connection."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


def answering(port: int, times: int = 20) -> set[int]:
    found = set()
    for _ in range(times):
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            found.add(int(connection.recv(100)))
    return found


def test_the_second_gets_nothing_until_it_is_wanted_and_then_everything():
    with reserved_port() as reserved:
        port = reserved.getsockname()[1]
        with listening(port, sockets=3) as first:
            assert steering.prefer_first(first, [port])
            with listening(port, sockets=2) as second:
                assert answering(port) == {first}
                assert steering.prefer_second(first, second, [port])
                assert answering(port) == {second}
                assert steering.prefer_first(first, [port])
                assert answering(port) == {first}


def test_when_the_first_dies_the_second_gets_everything_and_a_third_nothing():
    with reserved_port() as reserved:
        port = reserved.getsockname()[1]
        with listening(port, sockets=2) as first:
            assert steering.prefer_first(first, [port])
            with listening(port, sockets=2) as second:
                os.kill(first, 9)
                os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
                with listening(port, sockets=2):
                    assert answering(port) == {second}


def test_after_a_changeover_the_survivor_can_be_preferred_to_the_next():
    with reserved_port() as reserved:
        port = reserved.getsockname()[1]
        with listening(port) as first, listening(port) as second:
            steering.prefer_second(first, second, [port])
            os.kill(first, 9)
            os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
            assert steering.prefer_first(second, [port])
            with listening(port):
                assert answering(port) == {second}


def test_a_look_at_the_sockets_of_a_server_changes_nothing_of_them():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        with server_sockets.listeners(os.getpid(), port) as found:
            assert len(found) == 1
        assert not os.get_blocking(listener.fileno())
        assert steering.count(os.getpid(), port) == 1


def test_a_process_that_is_gone_listens_to_nothing_and_cannot_be_preferred():
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert steering.count(gone.pid, 80) == 0
    assert not steering.prefer_first(gone.pid, [80])


# Accepts one connection when told to, and answers with what it gets until that ends.
ECHO = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    sys.stdin.readline()
    connection, _ = listener.accept()
    while got := connection.recv(100):
        connection.sendall(got)
"""


@contextmanager
def echoing() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    command = [sys.executable, "-c", ECHO]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        try:
            yield child, int(child.stdout.readline())
        finally:
            child.kill()


def test_a_server_that_is_to_listen_no_more_keeps_what_is_connected():
    with echoing() as (server, port), socket.create_connection(("127.0.0.1", port), 10) as client:
        server.stdin.write(b"accept\n")
        server.stdin.flush()
        client.sendall(b"here")
        assert client.recv(100) == b"here"
        assert server_sockets.stop_listening(server.pid, port)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 10)
        client.sendall(b"still here")
        assert client.recv(100) == b"still here"
        assert not server_sockets.stop_listening(server.pid, port)


def test_who_waits_to_be_let_in_is_let_in_first(monkeypatch):
    monkeypatch.setattr(server_sockets, "ACCEPT_S", 60.0)
    with echoing() as (server, port), socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(b"a request")
        with ThreadPoolExecutor() as pool:
            stopping = pool.submit(server_sockets.stop_listening, server.pid, port)
            server.stdin.write(b"accept\n")
            server.stdin.flush()
            assert stopping.result(60)
        assert client.recv(100) == b"a request"


def test_a_server_that_accepts_nobody_is_not_waited_for_long(monkeypatch):
    monkeypatch.setattr(server_sockets, "ACCEPT_S", 0.0)
    with echoing() as (server, port), socket.create_connection(("127.0.0.1", port), 10):
        assert server_sockets.stop_listening(server.pid, port)
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert not server_sockets.stop_listening(gone.pid, 80)
