"""scripts/serve with the gateway beside the server, as a person starts it."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request

import pytest

from scripts.host import processes
from tests.gateway.gateway_process import ask, events_of, opened
from tests.server import echo_repository
from tests.server.echo_repository import ENDLESS
from tests.server.serving import free_ports, running_server
from tests.waiting import eventually

pytestmark = pytest.mark.server
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


def test_its_metrics_are_the_servers_too(served):
    _, port = served
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        assert b"llm_router_requests_in_flight" in page.read()
    assert json.loads(ask(port, "GET", "/v1/models", None, {}).text)["data"][0]["id"] == "auto"
