"""Clients that ask for long answers and read nothing of them."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from scripts.bench.open_loop import request_bytes
from tests.faults.load import Load
from tests.server.clients import idle

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(400)]

READERS = 256
LONG = {"text_input": "Tell a long story.", "max_tokens": 250, "min_tokens": 250, "stream": True}


def stalled_reader(host: str, stack: ExitStack) -> None:
    address, port = host.split(":")
    stack.enter_context(socket.create_connection((address, int(port)))).sendall(request_bytes(host, LONG))


def test_readers_that_stall_lose_nobody_else_a_request_and_are_forgotten(server):
    host = server.http_url.removeprefix("http://")
    with Load(server, streams=1, rate=2) as load, ExitStack() as readers:
        load.fault(f"{READERS} stalled readers")
        for _ in range(READERS):
            stalled_reader(host, readers)
        report = load.watch(20)
    assert report.lost == 0
    idle(server)
    with Load(server) as load:
        load.fault("after the stalled readers")
        assert load.watch(5).lost == 0
