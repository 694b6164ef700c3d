"""While the server behind the gateway is away: requests wait, broken streams say so, and the gateway ends in order."""

from __future__ import annotations

import http.client
import shutil
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.gateway.fake_router import FakeRouter
from tests.gateway.gateway_process import events_of, opened, running
from tests.gateway.raw_http import connect, exchange
from tests.server.echo_repository import ENDLESS
from tests.waiting import eventually

PROMPT = "one two three"
START = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n"
HEAD = START + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
LONG = {"model": "auto", "prompt": PROMPT, "stream": True, "max_tokens": 100_000, "seed": ENDLESS * 1000 + 1}


@pytest.fixture
def alone(tmp_path):
    """A stand-in and a gateway of the test's own."""
    with FakeRouter() as fake, running(tmp_path, fake.target, "--parked-s=30", "--max-parked=3") as gateway:
        yield fake, gateway


def test_requests_wait_for_a_router_that_is_being_loaded(alone):
    fake, gateway = alone
    fake.away = "Request for unknown model: 'llm_router' has no available versions"
    assert gateway.get("/ready").status == 503 and gateway.get("/health").status == 200
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(gateway.complete, PROMPT, stream=stream) for stream in (False, True, True)]
        assert eventually(lambda: gateway.metric("llm_gateway_parked") == 3)
        one_more = gateway.complete(PROMPT)
        assert (one_more.status, one_more.headers["retry-after"]) == (503, "1")
        fake.away = ""
        assert [future.result().status for future in waiting] == [200] * 3


def test_requests_wait_for_a_server_that_starts_again_and_its_streams_end_with_an_error(tmp_path):
    with ExitStack() as first, ThreadPoolExecutor(1) as pool:
        fake = first.enter_context(FakeRouter())
        gateway = first.enter_context(running(tmp_path, fake.target, "--parked-s=60"))
        stream = first.enter_context(opened(gateway.port, "/v1/completions", {**LONG, "max_tokens": 8000}))
        assert stream.readline()
        fake.stop()
        rest = stream.read().decode()
        assert '"type":"service_unavailable"' in events_of(rest)[-1] and "[DONE]" not in rest
        waiting = pool.submit(gateway.complete, PROMPT)
        assert eventually(lambda: gateway.metric("llm_gateway_parked") == 1)
        with FakeRouter(fake.port):
            assert waiting.result().json["choices"][0]["text"] == PROMPT


def test_a_server_that_stays_away_is_a_503_when_the_time_is_up(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        target = f"127.0.0.1:{nobody.getsockname()[1]}"
    with running(tmp_path, target, "--parked-s=0.3") as gateway:
        for reply in (gateway.complete(PROMPT), gateway.complete(PROMPT, stream=True)):
            assert (reply.status, reply.error["type"]) == (503, "service_unavailable")
            assert "retry-after" in reply.headers


def test_a_frozen_server_ends_its_streams_and_is_found_again(tmp_path):
    with FakeRouter() as fake, running(tmp_path, fake.target, "--server-silent-s=0.4", "--parked-s=1") as gateway:
        with opened(gateway.port, "/v1/completions", {**LONG, "max_tokens": 8000}) as stream:
            stream.readline()
            with fake.frozen():
                assert '"type":"service_unavailable"' in events_of(stream.read().decode())[-1]
                reply = gateway.complete(PROMPT)
                assert (reply.status, reply.error["type"]) == (503, "service_unavailable")
        assert eventually(lambda: gateway.complete(PROMPT).status == 200)


def test_a_client_that_leaves_while_it_waits_gives_its_place_up(alone):
    fake, gateway = alone
    fake.away = "Request for unknown model: 'llm_router' is not found"
    connection = connect(gateway.port)
    body = b'{"model":"auto","prompt":"x"}'
    connection.sendall(HEAD % len(body) + body)
    assert eventually(lambda: gateway.metric("llm_gateway_parked") == 1)
    connection.close()
    assert eventually(lambda: gateway.metric("llm_gateway_parked") == 0)


def test_told_to_end_it_is_not_ready_sends_what_runs_and_ends(alone):
    _, gateway = alone
    with opened(gateway.port, "/v1/completions", {**LONG, "max_tokens": 500, "seed": ENDLESS * 1000 + 5}) as stream:
        stream.readline()
        gateway.process.send_signal(signal.SIGTERM)
        assert eventually(lambda: "turned away" in gateway.log)
        assert gateway.get("/ready").status == 503
        refused = gateway.complete(PROMPT)
        assert (refused.status, refused.headers["connection"]) == (503, "close")
        assert events_of(stream.read().decode())[-1] == "[DONE]"
    assert gateway.process.wait(60) == 0


def test_told_twice_it_ends_at_once_and_says_that_it_cut_answers_off(alone):
    fake, gateway = alone
    with opened(gateway.port, "/v1/completions", {**LONG, "max_tokens": 8000, "seed": ENDLESS * 1000 + 50}) as stream:
        stream.readline()
        gateway.process.send_signal(signal.SIGTERM)
        assert eventually(lambda: "turned away" in gateway.log)
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(60) == 6
    assert eventually(lambda: fake.running == 0)


def test_a_reader_that_takes_nothing_is_cut_and_its_engine_stopped(tmp_path):
    prompt = "x" * 2000
    with FakeRouter() as fake, running(tmp_path, fake.target, "--slow-reader-s=0.5") as gateway:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", gateway.port))
        text = (
            f'{{"model":"auto","prompt":"{prompt}","stream":true,"max_tokens":8000,"seed":{ENDLESS * 1000}}}'.encode()
        )
        connection.sendall(HEAD % len(text) + text)
        assert eventually(lambda: gateway.metric("llm_gateway_slow_readers_total") == 1, 60)
        assert eventually(lambda: fake.stopped == 1 and gateway.is_idle())
        connection.close()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        START,
        HEAD % 9 + b"{",
    ],
)
def test_a_request_that_never_comes_is_not_waited_for(tmp_path, fake, data):
    with running(tmp_path, fake.target, "--head-s=0.3", "--body-s=0.3") as gateway:
        answer = exchange(gateway.port, data)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")


def test_heads_that_are_too_large_are_refused(gateway):
    many = b"".join(b"x-%d: 1\r\n" % number for number in range(200))
    for head in (b"GET /health HTTP/1.1\r\nx: " + b"y" * 20_000, b"GET /health HTTP/1.1\r\n" + many + b"\r\n"):
        assert exchange(gateway.port, head).startswith(b"HTTP/1.1 431 ")
    assert exchange(gateway.port, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert gateway.get("/health").status == 200


def test_more_connections_than_allowed_are_turned_away(tmp_path, fake):
    with running(tmp_path, fake.target, "--max-connections=2") as gateway:
        first, second = connect(gateway.port), connect(gateway.port)
        for connection in (first, second):
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert exchange(gateway.port, b"").startswith(b"HTTP/1.1 503 ")
        first.close()
        assert eventually(lambda: gateway.get("/health").status == 200)
        second.close()


def test_requests_on_one_connection_one_after_the_other_and_piled_up(gateway):
    ask = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"
    found = exchange(gateway.port, ask * 3 + b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    assert found.count(b"HTTP/1.1 200 OK") == 4


def test_a_stream_that_is_silent_gets_comments_which_are_no_events(tmp_path, fake):
    body = {**LONG, "max_tokens": 3, "seed": 999}
    with (
        running(tmp_path, fake.target, "--silent-s=0.1") as gateway,
        opened(gateway.port, "/v1/completions", body) as stream,
    ):
        text = stream.read().decode()
    assert ": keep-alive\n\n" in text
    assert len(events_of(text)) == 4


def test_a_full_house_is_told_to_come_back(tmp_path, fake):
    with running(tmp_path, fake.target, "--max-in-flight=1") as gateway:
        with opened(
            gateway.port, "/v1/completions", {**LONG, "max_tokens": 8000, "seed": ENDLESS * 1000 + 20}
        ) as stream:
            stream.readline()
            reply = gateway.complete(PROMPT)
            assert (reply.status, reply.error["type"]) == (503, "overloaded_error")
        assert eventually(lambda: gateway.complete(PROMPT).status == 200)


def test_a_gateway_that_is_killed_in_mid_stream_stops_its_engines_and_cuts_its_clients(alone):
    fake, gateway = alone
    with opened(gateway.port, "/v1/completions", {**LONG, "max_tokens": 8000}) as stream:
        stream.readline()
        gateway.process.kill()
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            stream.read()
    assert eventually(lambda: fake.running == 0 and fake.stopped == 1)


@pytest.mark.parametrize(
    ("head", "more"),
    [
        (b"GET /health HTTP/1.1\r\nx: ", b"a"),
        (HEAD % 100_000, b" "),
        (START + b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    ],
)
def test_what_comes_byte_by_byte_for_ever_is_cut(tmp_path, fake, head, more):
    with running(tmp_path, fake.target, "--head-s=0.5", "--body-s=0.5") as gateway, connect(gateway.port) as connection:
        connection.sendall(head)
        found = []

        def has_ended():
            try:
                connection.sendall(more)
                connection.settimeout(0.05)
                found.append(connection.recv(4096))
                return found[-1] == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        assert eventually(has_ended)
        assert b"".join(found) == b"" or b"".join(found).startswith(b"HTTP/1.1 408 ")
        assert gateway.get("/health").status == 200


@pytest.mark.parametrize(
    "lines",
    [
        b"content-length: 5\r\ntransfer-encoding: chunked",
        b"content-length: 5\r\ncontent-length: 6",
        b"content-length: -1",
        b"content-length: 99999999999999999999999",
        b"transfer-encoding: chunked\r\nx: a\x00b",
    ],
)
def test_a_head_that_two_readers_could_read_differently_is_refused(gateway, lines):
    assert exchange(gateway.port, START + lines + b"\r\n\r\n0\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert gateway.get("/health").status == 200


@pytest.mark.skipif(not shutil.which("ss"), reason="needs ss, of iproute2")
def test_a_client_that_vanished_is_looked_for(gateway):
    """The kernel does it, if it is told to: nothing else notices while there is nothing to send."""
    with connect(gateway.port) as connection:
        port = connection.getsockname()[1]
        timers = subprocess.run(["ss", "-tnoH", f"dport = :{port}"], capture_output=True, text=True).stdout
        assert "timer:(keepalive" in timers, timers
