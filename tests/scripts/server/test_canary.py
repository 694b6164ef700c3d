"""The canary's verdicts, by probes that answer as a test says."""

from __future__ import annotations

import socket
import threading

import pytest

from scripts.server import grpc_probe
from scripts.server.canary import GRPC, TOKENIZER, Canary, Probe, progress

SMALL = "tensorrt_llm_small"


class FakeServer:
    """Answers the probes that `silent` doesn't name; each round its page says what was done."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.done = {TOKENIZER: 0, SMALL: 0}

    def probe(self, name: str, model: str | None, strikes: int) -> Probe:
        return Probe(name, lambda timeout_s: name not in self.silent, model, strikes)

    def metrics(self) -> str:
        return "".join(
            f'nv_inference_request_success{{model="{model}",version="1"}} {count}\n'
            for model, count in self.done.items()
        )


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def canary(server) -> Canary:
    probes = [server.probe(TOKENIZER, "", 2), server.probe(GRPC, None, 4), server.probe(SMALL, SMALL, 4)]
    return Canary(probes, server.metrics)


def rounds(canary: Canary, count: int, alarmed: bool = True) -> set[str]:
    for _ in range(count):
        canary.round(alarmed)
    return set(canary.hung)


def test_a_server_that_answers_nothing_is_told_after_two_rounds(server, canary):
    server.silent = {TOKENIZER}
    assert rounds(canary, 1) == set()
    assert rounds(canary, 1) == {TOKENIZER}
    assert canary.is_whole_server_hung


def test_where_no_process_was_lost_it_takes_more(server, canary):
    server.silent = {TOKENIZER, GRPC}
    assert rounds(canary, 2, alarmed=False) == set()
    assert rounds(canary, 1, alarmed=False) == {TOKENIZER, GRPC}


def test_a_server_that_is_slow_but_moves_is_not_hung(server, canary, monkeypatch):
    server.silent = {TOKENIZER}

    def metrics() -> str:
        server.done[SMALL] += 1
        return server.metrics()

    canary._metrics = metrics
    assert rounds(canary, 8) == set()


def test_where_the_machine_is_slow_a_verdict_takes_more(server, canary):
    canary._is_prompt = lambda: False
    server.silent = {TOKENIZER}
    assert rounds(canary, 8) == set()
    assert rounds(canary, 1) == {TOKENIZER}


def test_where_the_server_does_not_tell_what_it_has_done_a_verdict_takes_more(server, canary):
    canary._metrics = lambda: ""
    server.silent = {TOKENIZER}
    assert rounds(canary, 8) == set()
    assert rounds(canary, 1) == {TOKENIZER}


def test_one_answer_ends_the_doubt(server, canary):
    server.silent = {GRPC}
    rounds(canary, 2)
    server.silent = set()
    rounds(canary, 1)
    server.silent = {GRPC}
    assert rounds(canary, 2) == set()


def test_an_engine_is_asked_only_after_a_loss_and_is_not_the_whole_server(server, canary):
    server.silent = {SMALL}
    assert rounds(canary, 9, alarmed=False) == set()
    assert rounds(canary, 4) == {SMALL}
    assert not canary.is_whole_server_hung


def test_a_server_that_is_gone_is_not_hung(canary):
    def refuse(timeout_s: float) -> bool:
        raise ConnectionRefusedError

    canary._probes = [Probe(GRPC, refuse, None, 1)]
    assert rounds(canary, 3) == set()


def test_progress_is_what_was_answered_and_the_use_of_the_cache():
    page = (
        'nv_inference_request_success{model="a",version="1"} 4\n'
        'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="a",version="1"} 7\n'
        'nv_trt_llm_request_metrics{model="a",request_type="waiting",version="1"} 1\n'
        'nv_inference_request_success{model="b",version="1"} 2\n'
    )
    assert progress(page) == {"a": "4 7 ", "b": "2 "}
    assert progress("") == {}


def test_a_grpc_endpoint_that_accepts_and_says_nothing_does_not_answer():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not grpc_probe.is_answered("127.0.0.1", silent.getsockname()[1], 0.2)


def test_a_grpc_endpoint_that_only_greets_does_not_answer_the_request():
    greeting = b"\0\0\0\4\0\0\0\0\0" + b"\0\0\0\4\1\0\0\0\0"

    def greet() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(greeting)
            while connection.recv(1000):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=greet)
        thread.start()
        assert not grpc_probe.is_answered("127.0.0.1", server.getsockname()[1], 0.3)
        thread.join(10)
