from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from scripts.bench.local_server import free_ports
from scripts.server import readiness, readiness_server
from scripts.server.readiness import NOT_READY, READY
from scripts.server.readiness_server import STOPPING, ReadinessServer


class FakeTriton(ThreadingHTTPServer):
    """Answers for each model's readiness with what `ready` says of it."""

    def __init__(self) -> None:
        self.ready = {"llm_router": True, "tensorrt_llm_small": True}
        self.asked = 0
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def port(self) -> int:
        return self.server_address[1]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked += 1
        self.send_response(200 if self.server.ready.get(self.path.split("/")[3]) else 400)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def triton() -> Iterator[FakeTriton]:
    with FakeTriton() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_each_model_is_asked_and_all_must_be_ready(triton, capsys):
    port = f"--http-port={triton.port}"
    assert readiness.main([port, *triton.ready]) == 0
    triton.ready["tensorrt_llm_small"] = False
    assert readiness.main([port, *triton.ready]) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "llm_router          ready",
        "tensorrt_llm_small  not ready",
    ]
    assert readiness.main([port, "llm_router"]) == 0


def test_without_names_every_model_of_the_repository_is_asked(triton, capsys):
    assert readiness.main([f"--http-port={triton.port}", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["models"]["llm_router"] == READY and found["models"]["preprocessing"] == NOT_READY
    assert not found["ready"]


def test_a_server_that_is_not_there_is_said_so_and_asked_once():
    (port,) = free_ports(1)
    states = readiness.ask("127.0.0.1", port, ["a", "b"])
    assert states == dict.fromkeys("ab", f"no answer from 127.0.0.1:{port}: Connection refused")
    assert not readiness.is_ready(states)


def test_scripts_serve_is_asked_for_the_models_that_it_serves(triton, capsys, monkeypatch):
    monkeypatch.setattr(readiness_server, "FRESH_S", 0.0)
    server = ReadinessServer(lambda: readiness.ask("127.0.0.1", triton.port, triton.ready), dict)
    with server.listening("127.0.0.1", 0) as port:
        assert readiness.main([f"--ready-port={port}"]) == 0
        assert readiness.main([f"--ready-port={port}", "llm_router", "elsewhere"]) == 1
        assert capsys.readouterr().out.splitlines()[-1] == "elsewhere   not served"
        triton.ready["llm_router"] = False
        assert readiness.main([f"--ready-port={port}"]) == 1
    assert readiness.main([f"--ready-port={port}"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("Connection refused")


def test_a_server_without_models_is_not_ready():
    assert not readiness.is_ready({})


def test_over_http_it_is_200_or_503_with_the_state_of_each_model(triton, monkeypatch):
    monkeypatch.setattr(readiness_server, "FRESH_S", 0.0)
    server = ReadinessServer(lambda: readiness.ask("127.0.0.1", triton.port, triton.ready), dict)
    with server.listening("127.0.0.1", 0) as port:
        assert get(port, "/ready") == (200, readiness.as_json(dict.fromkeys(triton.ready, READY)))
        triton.ready["llm_router"] = False
        status, text = get(port, "/ready?verbose")
        assert status == 503 and json.loads(text)["models"]["llm_router"] == NOT_READY
        assert get(port, "/")[0] == 404


def test_health_says_that_the_supervisor_lives_whatever_its_server_does(triton):
    server = ReadinessServer(lambda: readiness.ask("127.0.0.1", triton.port, triton.ready), dict)
    with server.listening("127.0.0.1", 0) as port:
        server.is_stopping = True
        assert (get(port, "/ready")[0], get(port, "/health")) == (503, (200, ""))


def test_a_server_that_drains_is_not_ready_though_its_models_are(triton):
    server = ReadinessServer(lambda: readiness.ask("127.0.0.1", triton.port, triton.ready), dict)
    with server.listening("127.0.0.1", 0) as port:
        server.is_stopping = True
        status, text = get(port, "/ready")
        assert status == 503 and set(json.loads(text)["models"].values()) == {STOPPING}


def test_many_probes_ask_the_models_once(triton, monkeypatch):
    monkeypatch.setattr(readiness_server, "FRESH_S", 60.0)
    server = ReadinessServer(lambda: readiness.ask("127.0.0.1", triton.port, triton.ready), dict)
    for _ in range(20):
        server.states()
    assert triton.asked == len(triton.ready)


def test_the_metrics_have_readiness_processes_and_shared_memory(triton):
    triton.ready["tensorrt_llm_small"] = False
    server = ReadinessServer(
        lambda: readiness.ask("127.0.0.1", triton.port, triton.ready), lambda: {"llm_router": 32, "preprocessing": 2}
    )
    lines = server.metrics().splitlines()
    assert 'llm_router_model_ready{model="llm_router"} 1' in lines
    assert 'llm_router_model_ready{model="tensorrt_llm_small"} 0' in lines
    assert 'llm_router_model_processes{model="llm_router"} 32' in lines
    assert 'llm_router_model_repairs_total{model="llm_router"} 0' in lines  # else an alert misses the first ones
    assert {"llm_router_server_restarts_total 0", "llm_router_server_changeovers_total 0"} <= set(lines)
    sizes = {name: float(value) for name, _, value in (line.partition(" ") for line in lines) if "shared" in name}
    assert 0 < sizes["llm_router_shared_memory_free_bytes"] <= sizes["llm_router_shared_memory_size_bytes"]
