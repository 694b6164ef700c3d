"""scripts/serve with the gateway beside the server, as a person starts it."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from scripts.host import processes
from tests.gateway.gateway_process import ask, events_of, opened
from tests.server import echo_repository
from tests.server.echo_repository import ENDLESS
from tests.server.serving import free_ports, running_server
from tests.server.supervised import says
from tests.waiting import eventually

pytestmark = pytest.mark.server
PROMPT = "one two three"
CHAT = {"model": "auto", "messages": [{"role": "user", "content": "one two three"}], "max_tokens": 50}


@pytest.fixture
def served(tmp_path):
    (port,) = free_ports(1)
    repository = echo_repository.make(tmp_path)
    with running_server(tmp_path, repository, f"--gateway-port={port}", "--host=0.0.0.0") as server:
        yield server, port


def gateway_pids(server):
    return [pid for pid in processes.tree(server.supervisor_pid) if "scripts.gateway" in processes.command(pid)]


def test_it_answers_it_comes_back_and_its_answers_end_before_the_server_does(served):
    server, port = served
    assert re.search(rf"OpenAI +http://127.0.0.1:{port}/v1", server.console.read_text())
    assert ask(port, "POST", "/v1/chat/completions", CHAT, {}).status == 200
    # Without keys neither it nor Triton is for others, whatever --host says.
    for pid in (*gateway_pids(server), server.server_pid):
        assert b"0.0.0.0" not in b" ".join(map(str.encode, processes.command(pid)))

    (pid,) = gateway_pids(server)
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: gateway_pids(server) not in ([], [pid]), 60)
    assert eventually(lambda: is_ready(port), 60)

    body = {**CHAT, "stream": True, "max_tokens": 300, "seed": ENDLESS * 1000 + 10}
    with opened(port, "/v1/chat/completions", body) as stream:
        stream.readline()
        server.process.send_signal(signal.SIGTERM)
        assert events_of(stream.read().decode())[-1] == "[DONE]"
    assert server.wait() == 0


def is_ready(port):
    try:
        return ask(port, "GET", "/ready", None, {}).status == 200
    except OSError:
        return False


@pytest.mark.slow
def test_a_new_server_takes_over_and_no_request_of_the_gateway_is_lost(served):
    server, port = served
    body = {"model": "auto", "prompt": PROMPT, "max_tokens": 50, "seed": 10}
    long = {**body, "stream": True, "max_tokens": 400, "seed": ENDLESS * 1000 + 30}
    has_changed = threading.Event()
    replies = []

    def ask_on(stream):
        while not has_changed.is_set():
            replies.append(ask(port, "POST", "/v1/completions", {**body, "stream": stream}, {}))

    with ThreadPoolExecutor(4) as pool, opened(port, "/v1/completions", long) as running:
        running.readline()
        asking = [pool.submit(ask_on, stream) for stream in (False, True, True)]
        try:
            server.process.send_signal(signal.SIGUSR1)
            assert says(server, "the old server has ended", 120)
        finally:
            has_changed.set()
        for each in asking:
            each.result()
        assert events_of(running.read().decode())[-1] == "[DONE]"
    assert [reply.text for reply in replies if reply.status != 200] == []
    for reply in replies:
        texts = [choice["text"] for chunk in objects_of(reply) for choice in chunk["choices"]]
        assert "".join(texts) == PROMPT, reply.text
    assert "what it still had was cut off" not in server.console.read_text()


def objects_of(reply):
    """The chunks of a stream that has its end, or the one object of a whole answer."""
    if not reply.headers["content-type"].startswith("text/event-stream"):
        return [reply.json]
    assert reply.events[-1] == "[DONE]", reply.text
    return reply.events[:-1]


def test_its_metrics_are_the_servers_too(served):
    _, port = served
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        assert b"llm_router_requests_in_flight" in page.read()
    assert json.loads(ask(port, "GET", "/v1/models", None, {}).text)["data"][0]["id"] == "auto"
