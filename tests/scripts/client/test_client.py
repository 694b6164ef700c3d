from __future__ import annotations

import asyncio
import shutil
import subprocess

import grpc
import numpy as np
import pytest

from scripts.client import Request, RequestFailed, TritonAsyncClient
from scripts.client import __main__ as command
from tests.client_cases import ENDLESS, SILENT, TEXT, ClientCases, eventually
from tests.fake_triton import FakeTriton

BUSY = ("UNAVAILABLE", "[BUSY] the queue is full", 0)
CORE_BUSY = ("UNAVAILABLE", "[request id: <id_unknown>] Exceeds maximum queue size", 0)


def play(scenario):
    async def whole():
        async with FakeTriton() as fake:
            await asyncio.wait_for(scenario(fake), 60)

    asyncio.run(whole())


class TestOnAFake(ClientCases):
    def play(self, scenario):
        play(scenario)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """The files of a key and of its certificate, for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("tls")
    key, pem = folder / "key.pem", folder / "server.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    more = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(pem)]
    subprocess.run([*words, *more], check=True, capture_output=True)
    return key, pem


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_it_speaks_tls_with_a_server_whose_certificate_it_is_given(certificate, capsys):
    key, pem = certificate
    server = grpc.ssl_server_credentials([(key.read_bytes(), pem.read_bytes())])

    async def scenario():
        async with FakeTriton(server) as fake:
            credentials = grpc.ssl_channel_credentials(pem.read_bytes())
            async with TritonAsyncClient(fake.url, credentials=credentials) as client:
                assert (await client.generate(Request(TEXT))).text == TEXT
            async with TritonAsyncClient(fake.url, retries=0) as client:
                with pytest.raises(RequestFailed):
                    await client.generate(Request(TEXT))
            words = ["--url", fake.url, "--root-certificates"]
            assert await asyncio.to_thread(command.main, [*words, str(pem), TEXT]) == 0
            assert await asyncio.to_thread(command.main, [*words, str(pem) + "x", TEXT]) == 2

    asyncio.run(asyncio.wait_for(scenario(), 60))
    said = capsys.readouterr()
    assert said.out.strip() == TEXT and said.err == f"error: --root-certificates {pem}x: No such file or directory\n"


# What is sent again, and what is not


@pytest.mark.parametrize("failure", [BUSY, CORE_BUSY, ("UNAVAILABLE", "Socket closed", 0)])
def test_a_request_that_found_nobody_is_sent_again(failure):
    async def scenario(fake):
        fake.failures = [failure, failure]
        async with TritonAsyncClient(fake.url, backoff_s=0.001) as client:
            assert (await client.generate(Request(TEXT))).text == TEXT
        assert fake.started() == 3

    play(scenario)


@pytest.mark.parametrize(
    "failure",
    [
        ("INVALID_ARGUMENT", "[BAD_REQUEST] no", 0),
        ("INTERNAL", "[INTERNAL] broken", 0),
        ("UNAVAILABLE", "[TIMEOUT] waited too long", 0),
        ("UNAVAILABLE", "[request id: <id_unknown>] Request timeout expired", 0),
        ("UNAVAILABLE", "Socket closed", 1),
    ],
)
def test_nothing_else_is_sent_again(failure):
    async def scenario(fake):
        fake.failures = [failure]
        async with TritonAsyncClient(fake.url, backoff_s=0.001) as client:
            with pytest.raises(RequestFailed) as caught:
                [piece async for piece in client.stream(Request(TEXT))]
        assert (caught.value.code, caught.value.message) == failure[:2]
        assert fake.started() == 1

    play(scenario)


def test_sending_again_ends_after_the_given_number_and_at_the_deadline():
    async def scenario(fake):
        fake.failures = [BUSY] * 10
        async with TritonAsyncClient(fake.url, retries=2, backoff_s=0.001) as client:
            with pytest.raises(RequestFailed, match=r"^\[BUSY\] the queue is full$") as caught:
                await client.generate(Request(TEXT))
        assert caught.value.attempts == fake.started() == 3
        async with TritonAsyncClient(fake.url, retries=2, backoff_s=100) as client:
            with pytest.raises(RequestFailed, match=r"^\[BUSY\]"):
                await client.generate(Request(TEXT, deadline_s=5))
        assert fake.started() == 4

    play(scenario)


def test_an_answer_that_is_not_streamed_is_sent_again_too():
    async def scenario(fake):
        fake.failures = [BUSY]
        async with TritonAsyncClient(fake.url, backoff_s=0.001) as client:
            answer = await client.generate(Request(TEXT, model="llama_7b_ensemble"))
        assert (answer.text, answer.finish_reason, fake.started()) == (TEXT, "", 2)

    play(scenario)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("in ensemble 'llama_7b_ensemble', [BAD_REQUEST] max_tokens is 0", "BAD_REQUEST"),
        ("[request id: a] Exceeds maximum queue size", "BUSY"),
        ("[request id: a] Request timeout expired", "TIMEOUT"),
        ("Socket closed", "UNAVAILABLE"),
    ],
)
def test_the_kind_of_an_error_is_the_word_in_it_or_its_code(message, kind):
    assert RequestFailed("UNAVAILABLE", message).kind == kind


# The connection, and how much is asked of it


def test_all_requests_share_one_connection():
    async def scenario(fake):
        async with TritonAsyncClient(fake.url) as client:
            for _ in range(2):
                await client.generate_all([Request(TEXT)] * 100)
        assert len(fake.peers) == 1

    play(scenario)


@pytest.mark.parametrize("places", [1, 3])
def test_no_more_requests_are_in_flight_than_allowed(places):
    async def scenario(fake):
        async with TritonAsyncClient(fake.url, max_in_flight=places) as client:
            await client.generate_all([Request(TEXT, inputs={"seed": 20})] * 9)
        assert fake.most_running == places

    play(scenario)


def test_requests_that_wait_for_a_place_are_sent_in_order():
    async def scenario(fake):
        async with TritonAsyncClient(fake.url, max_in_flight=1) as client:
            await client.generate_all([Request(f"say {number}") for number in range(8)])
        assert sent_texts(fake) == [f"say {number}" for number in range(8)]

    play(scenario)


def sent_texts(fake):
    return [request.raw_input_contents[names(request).index("text_input")][4:].decode() for request in fake.requests]


def names(request):
    return [tensor.name for tensor in request.inputs]


def test_a_request_that_waits_for_a_place_ends_at_its_deadline_and_leaves_the_place_to_others():
    async def scenario(fake):
        async with TritonAsyncClient(fake.url, max_in_flight=1) as client:
            first = asyncio.create_task(client.generate(Request(TEXT, inputs=SILENT)))
            await eventually(lambda: fake.started() == 1)
            with pytest.raises(RequestFailed, match=r"not sent within 0\.05 s: 1 requests are in flight") as caught:
                await client.generate(Request(TEXT, deadline_s=0.05))
            assert (caught.value.code, caught.value.attempts) == ("DEADLINE_EXCEEDED", 0)
            third = asyncio.create_task(client.generate(Request(TEXT)))
            first.cancel()
            assert (await third).text == TEXT
        assert fake.started() == 2

    play(scenario)


def test_a_closed_client_ends_what_runs_and_takes_nothing_more():
    async def scenario(fake):
        client = TritonAsyncClient(fake.url)
        slow = {"input_text": "wait", "max_tokens": 5}
        running = asyncio.create_task(client.infer("llama_7b_ensemble", slow))
        await eventually(lambda: fake.started() == 1)
        await client.close()
        for request in (running, client.infer("llama_7b_ensemble", slow), client.generate(Request(TEXT))):
            with pytest.raises(RequestFailed, match="CANCELLED: the client was closed"):
                await request
        assert fake.started() == 1

    play(scenario)


def test_a_request_that_has_not_begun_when_the_client_closes_ends_too():
    async def scenario(fake):
        client = TritonAsyncClient(fake.url)
        requests = [asyncio.create_task(client.generate(Request(TEXT))) for _ in range(3)]
        await asyncio.sleep(0)  # Each has made its task; none of these has run.
        await client.close()
        for request in requests:
            with pytest.raises(RequestFailed, match="CANCELLED: the client was closed"):
                await request

    play(scenario)


def test_a_stream_is_read_to_its_end_however_slowly_it_is_taken():
    async def scenario(fake):
        async with TritonAsyncClient(fake.url) as client:
            stream = client.stream(Request(TEXT, inputs={"seed": 1}))
            pieces = [await anext(stream)]
            await eventually(lambda: fake.running == 0)
            pieces += [piece async for piece in stream]
        assert "".join(piece.text for piece in pieces) == TEXT
        assert fake.stopped() == 0

    play(scenario)


def test_priority_and_timeout_reach_tritons_scheduler():
    async def scenario(fake):
        async with TritonAsyncClient(fake.url) as client:
            await client.generate(Request(TEXT, priority=1, timeout_s=1.5))
            await client.infer("preprocessing", {"QUERY": "hi", "REQUEST_OUTPUT_LEN": 1}, priority=3, timeout_s=0.25)
        sent = [request.parameters for request in fake.requests]
        assert [each["priority"].uint64_param for each in sent] == [1, 3]
        assert [each["timeout"].int64_param for each in sent] == [1_500_000, 250_000]

    play(scenario)


# What is wrong with a request is said without asking the server


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"temperatur": 0.5}, "temperatur is not an input of llm_router; did you mean temperature?"),
        ({"top_k": 1.5}, "top_k is 1.5; it must be of type INT32"),
        ({"top_k": "5"}, "top_k is '5'; it must be of type INT32"),
        ({"top_k": 2**40}, "top_k is 1099511627776; it must be of type INT32"),
        ({"stop_words": ["a", 5]}, "stop_words is ['a', 5]; it must be text or a list of texts"),
    ],
)
def test_a_wrong_input_is_refused_by_name(inputs, message):
    async def scenario(fake):
        async with TritonAsyncClient(fake.url) as client:
            (failure,) = await client.generate_all([Request(TEXT, inputs=inputs)])
        assert (failure.code, failure.message) == ("INVALID_ARGUMENT", message)
        assert fake.started() == 0

    play(scenario)


def test_a_model_that_takes_no_text_is_refused_by_name():
    async def scenario(fake):
        async with TritonAsyncClient(fake.url) as client:
            with pytest.raises(RequestFailed, match="preprocessing does not answer text; ask llm_router or"):
                await client.generate(Request(TEXT, model="preprocessing"))

    play(scenario)


def test_a_model_without_a_contract_gets_the_types_of_python():
    async def scenario(fake):
        async with TritonAsyncClient(fake.url) as client:
            with pytest.raises(RequestFailed):
                await client.infer(
                    "nothing", {"a": "hi", "b": [1, 2], "c": 0.5, "d": True, "e": np.zeros((2, 3), np.int64)}
                )
        (request,) = fake.requests
        assert [(each.datatype, list(each.shape)) for each in request.inputs] == [
            ("BYTES", [1, 1]), ("INT32", [1, 2]), ("FP32", [1, 1]), ("BOOL", [1, 1]), ("INT64", [2, 3])
        ]  # fmt: skip

    play(scenario)


# The command


def run(*arguments):
    """The command beside a fake, which needs the loop that the command would make for itself."""

    async def whole():
        async with FakeTriton() as fake:
            return await asyncio.to_thread(command.main, [f"--url={fake.url}", *arguments])

    return asyncio.run(whole())


def test_the_command_streams_one_answer(capsys):
    assert run("--raw", "--max-tokens=3", TEXT) == 0
    assert capsys.readouterr().out == "one two three\n"


def test_the_command_answers_several_prompts_in_order_and_says_which_failed(capsys):
    assert run("--model=llama_7b_ensemble", "a b", "c") == 0
    assert capsys.readouterr().out == "a b\nc\n"
    assert run("--max-tokens=0", "a", "b") == 1
    assert capsys.readouterr().err == 2 * "error: [BAD_REQUEST] max_tokens is 0; it must be a single value > 0\n"


def test_a_server_that_is_not_there_is_said_with_the_way_to_start_it(capsys):
    assert command.main(["--url=127.0.0.1:1", "--deadline=0.1", "hi"]) == 1
    assert capsys.readouterr().err == (
        "error: no server answers on 127.0.0.1:1: start one with scripts/serve cpu, or give --url\n"
    )


def test_an_endless_answer_can_be_left_from_the_middle_of_the_loop():
    async def scenario(fake):
        async with TritonAsyncClient(fake.url) as client:
            for _ in range(50):
                async for _piece in client.stream(Request(TEXT, max_tokens=5000, inputs=ENDLESS)):
                    break
            await eventually(lambda: fake.running == 0)
        assert fake.stopped() == 50

    play(scenario)


# Made outside of a loop, used from several


def test_a_client_is_made_outside_of_any_loop_and_used_in_one_after_the_other():
    client = TritonAsyncClient("127.0.0.1:1")

    async def scenario(fake):
        client.url = fake.url
        assert (await client.generate(Request(TEXT))).text == TEXT

    play(scenario)
    play(scenario)


def test_a_second_loop_beside_the_first_is_told_whose_client_it_is():
    async def scenario(fake):
        async with TritonAsyncClient(fake.url) as client:
            await client.generate(Request(TEXT))
            with pytest.raises(RuntimeError, match="belongs to another event loop"):
                await asyncio.to_thread(asyncio.run, client.generate(Request(TEXT)))
            assert (await client.generate(Request(TEXT))).text == TEXT

    play(scenario)
