"""TritonAsyncClient against llm_router on the real server, in front of engines whose every token is known."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

import pytest

from bls.contract import LLAMA_7B_ENSEMBLE, ROUTER
from scripts.client import Request, TritonAsyncClient
from scripts.stress import __main__ as stress
from tests.client_cases import ENDLESS, TEXT, ClientCases
from tests.server import echo_repository
from tests.server.clients import control, metric
from tests.server.serving import Server, running_server

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def echoes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("echo")
    with running_server(folder, echo_repository.make(folder, routers=6)) as running:
        yield running


@dataclass(frozen=True)
class Counted:
    """The server as a scenario sees it: requests that reached an engine, and those that were stopped there."""

    server: Server

    @property
    def url(self):
        return self.server.grpc_url

    def started(self):
        return metric(self.server, "echo_engine_started_total")

    def stopped(self):
        return metric(self.server, "echo_engine_stopped_total")


def play(scenario, server):
    asyncio.run(asyncio.wait_for(scenario(Counted(server)), 120))


class TestOnTheRealServer(ClientCases):
    @pytest.fixture(autouse=True)
    def with_server(self, echoes):
        self.server = echoes

    def play(self, scenario):
        play(scenario, self.server)


def test_streams_taken_slowly_or_left_let_the_router_unload_and_a_request_waits_until_it_is_back(echoes):
    async def scenario(counted):
        async with TritonAsyncClient(counted.url, retries=20, backoff_s=0.1) as client:
            slow = client.stream(Request(TEXT))
            first = await anext(slow)
            left = client.stream(Request(TEXT, max_tokens=5000, inputs=ENDLESS))
            await anext(left)
            await left.aclose()
            await asyncio.to_thread(control, echoes, ROUTER, "unload")
            assert not await client.is_ready(ROUTER)
            pieces = [first, *[piece async for piece in slow]]
            assert "".join(piece.text for piece in pieces) == TEXT
            waiting = asyncio.create_task(client.generate(Request(TEXT)))
            await asyncio.to_thread(control, echoes, ROUTER, "load")
            assert (await waiting).text == TEXT

    play(scenario, echoes)


def test_the_stress_test_counts_what_was_answered_and_what_failed(echoes, tmp_path, capsys):
    mix = tmp_path / "mix.jsonl"
    mix.write_text(json.dumps({"text": TEXT, "max_tokens": 50}))
    assert stress.main([f"--url={echoes.grpc_url}", "--requests=60", "--rate=200", f"--mix={mix}", "--raw"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["answered"], found["errors"], found["good"]) == (60, {}, 60)
    assert found["tokens_per_second"] * found["seconds"] == pytest.approx(60 * 5, rel=0.01)
    assert 0 < found["first_token_ms"]["p50"] <= found["latency_ms"]["p50"]
    mix.write_text(json.dumps({"text": TEXT, "max_tokens": 100_000}))
    assert stress.main([f"--url={echoes.grpc_url}", "--requests=5", f"--mix={mix}"]) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["errors"] == {"BAD_REQUEST": 5}


def test_the_ensemble_answers_many_at_once_and_a_bad_request_fails_alone(server):
    async def scenario(counted):
        requests = [
            Request("The capital of France is", max_tokens=0 if number == 5 else 2, model=LLAMA_7B_ENSEMBLE)
            for number in range(12)
        ]
        async with TritonAsyncClient(counted.url) as client:
            answers = await client.generate_all(requests)
        failure = answers.pop(5)
        assert (failure.code, failure.kind) == ("INVALID_ARGUMENT", "BAD_REQUEST")
        assert "is 0" in failure.message
        assert [answer.text for answer in answers] == [" Paris."] * 11

    play(scenario, server)
