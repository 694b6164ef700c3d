"""The gateway's drain, by its admin door and by a signal: who is answered, who is turned away, what is closed."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import pytest

from gateway.draining import Drain
from tests.gateway.gateway_process import ROOT, ask, events_of, opened, running
from tests.gateway.raw_http import connect, read_to_end
from tests.server.echo_repository import ENDLESS
from tests.server.serving import free_ports
from tests.waiting import eventually

PROMPT = "one two three"
LONG = {"model": "auto", "prompt": PROMPT, "stream": True, "max_tokens": 8000, "seed": ENDLESS * 1000 + 20}
FOR_EVER = "--lame-duck-s=86400"


@contextmanager
def with_admin(folder, fake, *flags):
    (port,) = free_ports(1)
    with running(folder, fake.target, f"--admin={port}", *flags) as gateway:
        yield gateway, port


@pytest.fixture
def drained(tmp_path, fake):
    """A gateway and its admin port; there is no lame duck's time."""
    with with_admin(tmp_path, fake) as found:
        yield found


def tell(port, path, method="POST", **headers):
    return ask(port, method, path, None, headers)


def command(*words):
    return subprocess.run(
        [sys.executable, "-m", "scripts.gateway", *words], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


def test_a_drain_is_of_all_processes_and_an_end_of_one():
    drain = Drain()
    assert not drain.is_on and not drain.refuses(0)
    drain.begin()
    since = drain.since
    drain.begin()
    assert drain.since == since and drain.refuses(0) and not drain.refuses(3600)
    drain.end()
    drain.cancel()
    assert drain.is_on and drain.since >= since


def test_drained_it_turns_new_requests_away_and_sends_what_runs_to_its_end_until_it_serves_again(drained):
    gateway, door = drained
    with opened(gateway.port, "/v1/completions", {**LONG, "max_tokens": 100}) as stream:
        stream.readline()
        assert tell(door, "/drain").json == {"draining": True, "refusing": True, "in_flight": 1}
        ready, refused = gateway.get("/ready"), gateway.complete(PROMPT)
        assert (ready.status, refused.status) == (503, 503)
        assert refused.error["type"] == "overloaded_error"
        assert refused.headers["retry-after"] == "1" and refused.headers["connection"] == "close"
        assert events_of(stream.read().decode())[-1] == "[DONE]"
    assert eventually(lambda: tell(door, "/drain", "GET").json["in_flight"] == 0)
    assert tell(door, "/undrain").json == {"draining": False, "refusing": False, "in_flight": 0}
    assert gateway.get("/ready").status == 200
    reply = gateway.complete(PROMPT)
    assert reply.status == 200 and "connection" not in reply.headers


def test_in_the_lame_ducks_time_ready_says_no_and_requests_are_answered(tmp_path, fake):
    with with_admin(tmp_path, fake, FOR_EVER) as (gateway, door):
        assert tell(door, "/drain").json["refusing"] is False
        assert gateway.get("/ready").status == 503
        for stream in (False, True):
            reply = gateway.complete(PROMPT, stream=stream)
            assert (reply.status, reply.headers["connection"]) == (200, "close")  # so that the next comes elsewhere
        gateway.process.kill()


def test_told_to_end_it_says_no_first_and_turns_away_later(tmp_path, fake):
    with running(tmp_path, fake.target, "--lame-duck-s=0.5") as gateway:
        with opened(gateway.port, "/v1/completions", {**LONG, "max_tokens": 100}) as stream:
            stream.readline()
            gateway.process.send_signal(signal.SIGTERM)
            assert eventually(lambda: gateway.complete(PROMPT).status == 503)
            assert events_of(stream.read().decode())[-1] == "[DONE]"
        assert gateway.process.wait(60) == 0
        said = gateway.log
    assert 0 < said.index("draining: /ready says no") < said.index("new requests are turned away")


def test_all_processes_of_a_gateway_drain(tmp_path, fake):
    with with_admin(tmp_path, fake, "--workers=3") as (gateway, door):
        with ExitStack() as stack:
            for _ in range(6):
                assert stack.enter_context(opened(gateway.port, "/v1/completions", LONG)).readline()
            tell(door, "/drain")
            assert {gateway.complete(PROMPT).status for _ in range(12)} == {503}
            assert {gateway.get("/ready").status for _ in range(12)} == {503}
            assert eventually(lambda: tell(door, "/drain", "GET").json["in_flight"] == 6)
        assert eventually(lambda: tell(door, "/drain", "GET").json["in_flight"] == 0)
        tell(door, "/undrain")
        assert {gateway.complete(PROMPT).status for _ in range(12)} == {200}


def test_connections_that_clients_keep_are_closed(drained):
    gateway, door = drained
    kept = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    kept.request("GET", "/health")
    assert kept.getresponse().read() == b""
    tell(door, "/drain")
    assert kept.sock.recv(1) == b""
    kept.close()


def test_a_request_that_waits_for_a_server_is_turned_away(tmp_path):
    (nobody,) = free_ports(1)
    (port,) = free_ports(1)
    with running(tmp_path, f"127.0.0.1:{nobody}", f"--admin={port}", "--parked-s=120") as gateway:
        with connect(gateway.port) as connection:
            body = json.dumps({"model": "auto", "prompt": PROMPT}).encode()
            head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            assert eventually(lambda: gateway.metric("llm_gateway_parked") == 1)
            tell(port, "/drain")
            assert read_to_end(connection).startswith(b"HTTP/1.1 503")
        tell(port, "/undrain")
        assert eventually(lambda: gateway.metric("llm_gateway_draining") == 0)


def test_a_gateway_that_has_no_room_for_connections_can_be_drained(tmp_path, fake):
    with (
        with_admin(tmp_path, fake, "--max-connections=1") as (gateway, door),
        opened(gateway.port, "/v1/completions", LONG) as stream,
    ):
        stream.readline()
        assert gateway.get("/health").status == 503  # full
        assert tell(door, "/drain").json["in_flight"] == 1


def test_the_door_is_not_for_browsers_and_not_on_the_gateways_port(drained):
    gateway, door = drained
    assert tell(door, "/drain", origin="http://else.example").status == 403
    assert tell(door, "/drain", sec_fetch_site="cross-site").status == 403
    assert tell(door, "/drain", host="rebound.example").status == 403
    assert tell(door, "/undrain", "GET").status == 405
    assert tell(door, "/").status == 404
    assert gateway.post("/drain", {}).status == 404
    assert gateway.get("/ready").status == 200


def test_the_command_waits_until_nothing_is_in_flight(drained):
    gateway, door = drained
    with opened(gateway.port, "/v1/completions", LONG) as stream:
        stream.readline()
        cut = command("drain", f"--admin={door}", "--drain-seconds=0.1")
        assert (cut.returncode, cut.stderr) == (6, "error: 1 still in flight after 0.1 s\n")
        assert "draining: 1 in flight" in cut.stdout
    done = command("drain", f"--admin=127.0.0.1:{door}")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "drained: nothing is in flight")
    assert command("undrain", f"--admin={door}").returncode == 0
    assert gateway.get("/ready").status == 200


@pytest.mark.parametrize("admin", ["1", "127.0.0.1:1"])
def test_the_command_says_where_no_gateway_is(admin):
    found = command("drain", f"--admin={admin}")
    told = "error: no admin door at 127.0.0.1:1: Connection refused; it is scripts/gateway --admin\n"
    assert (found.returncode, found.stderr) == (2, told)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--admin=here"], "--admin must be PORT or HOST:PORT, not 'here'"),
        (["--admin=70000"], "--admin must be PORT or HOST:PORT"),
        (["--admin=9000"], "--admin must not be the gateway's own --port"),
        (["--lame-duck-s=-1"], "--lame-duck-s must be 0 or more"),
        (["--drain-seconds=0"], "--drain-s must be more than 0"),
    ],
)
def test_a_bad_option_is_refused_by_name(flags, words):
    found = command(*flags)
    assert found.returncode == 2 and words in found.stderr and found.stderr.count("\n") == 1


def test_an_admin_port_that_is_taken_is_named(tmp_path, fake):
    with with_admin(tmp_path, fake) as (_, door):
        found = command(f"--triton={fake.target}", "--port=0", f"--admin={door}")
        assert found.returncode == 2 and f"Address already in use: 127.0.0.1:{door}" in found.stderr
