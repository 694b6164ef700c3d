"""scripts/serve told to stop, or its gateway told to drain, on the real server: nothing that has begun is lost."""

from __future__ import annotations

import signal
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.gateway.gateway_process import ask, events_of, opened
from tests.server import echo_repository
from tests.server.clients import grpc_stream, metric
from tests.server.echo_repository import ENDLESS
from tests.server.serving import free_ports, running_server
from tests.waiting import eventually

pytestmark = pytest.mark.server
ROUTERS = 2
SECONDS_2 = {"text_input": "one two three", "max_tokens": 40, "stream": True, "seed": ENDLESS * 1000 + 50}


@pytest.fixture
def served(tmp_path):
    """A server whose gateway, admin door and ready port are at these ports."""
    ports = free_ports(3)
    flags = [
        f"--{name}={port}" for name, port in zip(("gateway-port", "gateway-admin", "ready-port"), ports, strict=True)
    ]
    with running_server(tmp_path, echo_repository.make(tmp_path, routers=ROUTERS), *flags) as server:
        yield server, *ports


def ready(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=10) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def test_requests_that_came_past_the_gateway_are_answered_with_every_model_still_there(served):
    """More of them than router processes: those that wait call the models only after the server was told to stop."""
    server, _, _, ready_port = served

    def whole():
        with grpc_stream(server, **SECONDS_2) as stream:
            messages = list(stream.messages())
            return messages[-1] if isinstance(messages[-1], Exception) else len(messages)

    with ThreadPoolExecutor(3 * ROUTERS) as pool:
        answers = [pool.submit(whole) for _ in range(3 * ROUTERS)]
        waiting = ("nv_inference_pending_request_count", "llm_router")
        assert eventually(lambda: metric(server, waiting[0], model=waiting[1]) == 2 * ROUTERS, 60)
        server.process.send_signal(signal.SIGTERM)
        assert eventually(lambda: ready(ready_port) == 503)
        assert [answer.result() for answer in answers] == [SECONDS_2["max_tokens"]] * 3 * ROUTERS
    assert server.wait() == 0
    assert "stopping: requests in flight" in server.console.read_text()


def test_told_by_the_admin_door_neither_is_ready_until_told_otherwise(served):
    _, port, admin, ready_port = served
    assert eventually(lambda: ready(ready_port) == ready(port) == 200, 60)
    body = {"model": "auto", "prompt": "one two", "stream": True, "max_tokens": 60, "seed": ENDLESS * 1000 + 20}
    with opened(port, "/v1/completions", body) as stream:
        stream.readline()
        assert ask(admin, "POST", "/drain", None, {}).json["refusing"]
        assert ready(port) == 503
        assert eventually(lambda: ready(ready_port) == 503)
        assert ask(port, "POST", "/v1/completions", body, {}).status == 503
        assert events_of(stream.read().decode())[-1] == "[DONE]"
    ask(admin, "POST", "/undrain", None, {})
    assert eventually(lambda: ready(ready_port) == ready(port) == 200)
    assert ask(port, "POST", "/v1/completions", body, {}).status == 200
