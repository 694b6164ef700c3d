"""What TritonAsyncClient must do on any server: a fake one in tests/scripts/client/, a real one in tests/server/."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from scripts.client import Answer, Request, RequestFailed, TritonAsyncClient
from tests.server import echo_repository

TEXT = "one two three four five"
SILENT = {"seed": 1000 * echo_repository.SILENT}
ENDLESS = {"seed": 1000 * echo_repository.ENDLESS + 20}
FAILS_LATER = {"seed": 1000 * echo_repository.FAILS_LATER + 50}


class ClientCases:
    """A subclass says how a scenario is run: `play(scenario)` calls it with a server: url, started(), stopped()."""

    def play(self, scenario: Callable[[Any], Awaitable[None]]) -> None:
        raise NotImplementedError

    def test_the_pieces_are_the_text_and_the_last_tells_the_rest(self):
        async def scenario(server):
            async with TritonAsyncClient(server.url) as client:
                pieces = [piece async for piece in client.stream(Request(TEXT, max_tokens=50))]
            assert "".join(piece.text for piece in pieces) == TEXT
            assert [piece.is_last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
            assert (pieces[-1].finish_reason, pieces[-1].model) == ("stop", "tensorrt_llm_small")
            assert sum(piece.tokens for piece in pieces) == 5

        self.play(scenario)

    def test_the_whole_answer_is_the_pieces_together(self):
        async def scenario(server):
            async with TritonAsyncClient(server.url) as client:
                answer = await client.generate(Request(TEXT, max_tokens=3))
            assert (answer.text, answer.finish_reason, answer.output_tokens) == ("one two three", "length", 3)

        self.play(scenario)

    def test_one_bad_request_among_fifty_fails_alone(self):
        async def scenario(server):
            requests = [Request(TEXT, max_tokens=0 if number == 17 else 50) for number in range(50)]
            async with TritonAsyncClient(server.url) as client:
                answers = await client.generate_all(requests)
            failure = answers.pop(17)
            assert isinstance(failure, RequestFailed)
            assert (failure.code, failure.kind) == ("INVALID_ARGUMENT", "BAD_REQUEST")
            assert str(failure) == "[BAD_REQUEST] max_tokens is 0; it must be a single value > 0"
            assert [answer.text for answer in answers] == [TEXT] * 49

        self.play(scenario)

    def test_of_two_hundred_at_once_none_is_lost_or_mixed_up(self):
        async def scenario(server):
            texts = [f"request {number} says {number}" for number in range(200)]
            async with TritonAsyncClient(server.url) as client:
                answers = await client.generate_all([Request(text, max_tokens=50) for text in texts])
            assert [answer.text if isinstance(answer, Answer) else answer for answer in answers] == texts

        self.play(scenario)

    def test_an_engine_that_breaks_in_mid_stream_ends_it_with_what_was_sent_and_is_not_asked_again(self):
        async def scenario(server):
            before = server.started()
            async with TritonAsyncClient(server.url) as client:
                pieces = [piece async for piece in client.stream(Request(TEXT, inputs=FAILS_LATER))]
            assert "".join(piece.text for piece in pieces) == "one two"
            assert (pieces[-1].is_last, pieces[-1].finish_reason) == (True, "engine_error")
            assert server.started() == before + 1

        self.play(scenario)

    def test_without_a_stream_an_engine_that_breaks_is_an_error(self):
        async def scenario(server):
            async with TritonAsyncClient(server.url) as client:
                with pytest.raises(RequestFailed) as caught:
                    await client.generate(Request(TEXT, inputs=FAILS_LATER))
            assert (caught.value.code, caught.value.kind, caught.value.attempts) == ("INTERNAL", "INTERNAL", 1)

        self.play(scenario)

    @pytest.mark.parametrize("script", [SILENT, ENDLESS])
    def test_cancelling_the_task_stops_the_engine(self, script):
        async def scenario(server):
            before = server.started(), server.stopped()
            async with TritonAsyncClient(server.url) as client:
                task = asyncio.create_task(client.generate(Request(TEXT, max_tokens=5000, inputs=script)))
                await eventually(lambda: server.started() == before[0] + 1)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await eventually(lambda: server.stopped() == before[1] + 1)

        self.play(scenario)

    def test_leaving_the_loop_stops_the_engine(self):
        async def scenario(server):
            before = server.stopped()
            async with TritonAsyncClient(server.url) as client:
                async for _ in client.stream(Request(TEXT, max_tokens=5000, inputs=ENDLESS)):
                    break
                await eventually(lambda: server.stopped() == before + 1)

        self.play(scenario)

    def test_an_error_in_the_callers_loop_stops_the_engine(self):
        async def caller(client):
            async for _ in client.stream(Request(TEXT, max_tokens=5000, inputs=ENDLESS)):
                raise ZeroDivisionError

        async def scenario(server):
            before = server.stopped()
            async with TritonAsyncClient(server.url) as client:
                with pytest.raises(ZeroDivisionError):
                    await caller(client)
                await eventually(lambda: server.stopped() == before + 1)

        self.play(scenario)

    def test_a_request_ends_at_its_deadline_and_its_engine_is_stopped(self):
        async def scenario(server):
            before = server.stopped()
            async with TritonAsyncClient(server.url) as client:
                with pytest.raises(RequestFailed, match=r"the answer had not ended after 0\.5 s") as caught:
                    await client.generate(Request(TEXT, inputs=SILENT, deadline_s=0.5))
                assert caught.value.code == "DEADLINE_EXCEEDED"
                await eventually(lambda: server.stopped() == before + 1)

        self.play(scenario)

    def test_the_servers_own_timeout_ends_an_answer_with_what_it_has(self):
        async def scenario(server):
            async with TritonAsyncClient(server.url) as client:
                answer = await client.generate(Request(TEXT, inputs=SILENT, timeout_s=0.3))
            assert answer.finish_reason == "timeout"

        self.play(scenario)

    def test_closing_the_client_ends_its_requests_with_an_error_and_stops_their_engines(self):
        async def scenario(server):
            before = server.started(), server.stopped()
            client = TritonAsyncClient(server.url)
            waiting = asyncio.create_task(client.generate_all([Request(TEXT, inputs=SILENT)] * 3))
            await eventually(lambda: server.started() == before[0] + 3)
            await client.close()
            failures = await waiting
            assert [str(failure) for failure in failures] == ["CANCELLED: the client was closed"] * 3
            await eventually(lambda: server.stopped() == before[1] + 3)

        self.play(scenario)

    def test_a_connection_that_breaks_ends_all_its_requests(self):
        async def scenario(server):
            before = server.started()
            requests = [Request(TEXT, max_tokens=5000, inputs=(SILENT, ENDLESS)[number % 2]) for number in range(6)]
            async with proxy(server.url) as way, TritonAsyncClient(way.url, retries=0) as client:
                waiting = asyncio.create_task(client.generate_all(requests))
                await eventually(lambda: server.started() == before + 6)
                await way.cut()
                failures = await asyncio.wait_for(waiting, 30)
            assert {failure.code for failure in failures} == {"UNAVAILABLE"}
            await eventually(lambda: server.stopped() >= server.started() - before)

        self.play(scenario)

    def test_a_server_that_is_not_there_fails_each_request_within_its_deadline(self):
        async def scenario(server):
            async with proxy(server.url) as way:
                pass
            begin = time.monotonic()
            async with TritonAsyncClient(way.url, retries=2, backoff_s=0.01) as client:
                failures = await client.generate_all([Request(TEXT, deadline_s=20)] * 5)
                assert not await client.is_ready("llm_router")
            assert {(failure.code, failure.attempts) for failure in failures} == {("UNAVAILABLE", 3)}
            assert time.monotonic() - begin < 20

        self.play(scenario)

    def test_after_a_broken_connection_the_same_client_connects_again(self):
        async def scenario(server):
            async with proxy(server.url) as way, TritonAsyncClient(way.url, backoff_s=0.05) as client:
                assert (await client.generate(Request(TEXT))).text == TEXT
                await way.cut()
                assert (await client.generate(Request(TEXT))).text == TEXT

        self.play(scenario)

    def test_a_model_that_is_not_decoupled_answers_with_arrays(self):
        async def scenario(server):
            async with TritonAsyncClient(server.url) as client:
                assert await client.is_ready("preprocessing")
                found = await client.infer("preprocessing", {"QUERY": "one two three", "REQUEST_OUTPUT_LEN": 5})
            assert found["INPUT_ID"].shape == (1, 3)

        self.play(scenario)

    def test_a_model_that_is_not_there_is_said_by_name(self):
        async def scenario(server):
            async with TritonAsyncClient(server.url, retries=0) as client:
                with pytest.raises(RequestFailed, match="unknown model: 'nothing'") as caught:
                    await client.infer("nothing", {})
                assert caught.value.code == "NOT_FOUND"
                assert not await client.is_ready("nothing")

        self.play(scenario)


async def eventually(condition: Callable[[], Any], seconds: float = 30) -> None:
    """Waits until the condition holds; fails the test if it never does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0.02)


class Proxy:
    """A way to the server that can be cut. What was open is reset; new connections are taken again."""

    def __init__(self, target: str) -> None:
        self._host, self._port = target.split(":")
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self.url = ""

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, int(self._port))
        self._writers |= {writer, far_writer}
        for pump in (self._pump(reader, far_writer), self._pump(far_reader, writer)):
            self._pumps.add(asyncio.create_task(pump))

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
        except OSError:
            pass

    async def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        if self._pumps:
            await asyncio.wait(self._pumps)
        self._writers, self._pumps = set(), set()


@asynccontextmanager
async def proxy(target: str):
    way = Proxy(target)
    listener = await asyncio.start_server(way.accept, "127.0.0.1", 0)
    way.url = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield way
    finally:
        listener.close()
        await way.cut()
        await listener.wait_closed()
