"""What becomes of the gateway's clients when the server beneath it dies, freezes, or is left by them."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings

from tests.gateway.abandoning import abandon
from tests.gateway.fuzzing import FUZZ, check, requests
from tests.gateway.gateway_process import events_of, opened, running
from tests.server import echo_repository
from tests.server.clients import metric
from tests.server.echo_repository import ENDLESS
from tests.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(600)]
LONG = {"model": "auto", "prompt": "one two three", "stream": True, "max_tokens": 4000, "seed": ENDLESS * 1000 + 20}


@pytest.fixture
def served(serve, tmp_path):
    server = serve(repository=echo_repository.make(tmp_path, routers=6))
    with running(tmp_path, server.grpc_url, "--parked-s=150", "--server-silent-s=2") as gateway:
        yield server, gateway


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_streams_end_with_an_error_and_requests_wait_for_the_next_server(served, number):
    server, gateway = served
    with opened(gateway.port, "/v1/completions", LONG) as stream, ThreadPoolExecutor(4) as pool:
        stream.readline()
        os.kill(server.server_pid, number)
        assert '"type":"service_unavailable"' in events_of(stream.read().decode())[-1]
        asked = [pool.submit(gateway.complete, "one two", stream=stream) for stream in (False, True) * 2]
        assert [answer.result().status for answer in asked] == [200] * 4  # from the server that followed


def test_a_thousand_streams_that_are_abandoned_leave_nothing_in_flight(served):
    server, gateway = served
    asyncio.run(abandon(gateway.port, 1000, 5, LONG))
    assert eventually(lambda: metric(server, "llm_router_requests_in_flight") == 0, 60)
    assert eventually(gateway.is_idle)
    started, stopped = (f"echo_engine_{what}_total" for what in ("started", "stopped"))
    assert eventually(lambda: metric(server, started) == metric(server, stopped))
    assert gateway.complete("one two").json["choices"][0]["text"] == "one two"


@pytest.mark.timeout(1800)
def test_ten_thousand_bodies_on_the_real_server(serve, tmp_path):
    server = serve(repository=echo_repository.make(tmp_path, routers=4, classifier=True))
    with running(tmp_path, server.grpc_url) as gateway:

        @settings(max_examples=10_000, **FUZZ)
        @given(requests())
        def ask(request):
            check(gateway, *request)

        ask()
        assert gateway.is_idle() and "Traceback" not in gateway.log
        assert metric(server, "llm_router_requests_in_flight") == 0
        assert gateway.complete("one two").json["choices"][0]["text"] == "one two"
