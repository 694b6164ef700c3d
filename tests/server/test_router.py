"""llm_router on the real server, in front of engines whose every token is known."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bls.contract import LARGE, SMALL
from bls.routing.policy_file import SHIPPED
from tests.server import echo_repository
from tests.server.clients import (
    answer,
    control,
    event_stream,
    events_of,
    eventually,
    generate,
    grpc_stream,
    idle,
    is_final,
    load_again_in_place,
    metric,
    refusal,
    text_of,
)
from tests.server.serving import running_server

pytestmark = pytest.mark.server

TEXT = "It was a bright cold day in April, 你好世界 👩‍👩‍👧‍👦 and the clocks were striking thirteen."
ENDLESS = 1000 * echo_repository.ENDLESS
SILENT = 1000 * echo_repository.SILENT


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("echo")
    repository = echo_repository.make(folder, routers=32)
    (folder / "policy.py").write_text(SHIPPED.read_text() + echo_repository.UNLIMITED)
    echo_repository.set_parameter(repository, "llm_router", "policy_file", "policy.py")
    with running_server(folder, repository) as running:
        yield running


def started(server):
    return metric(server, "echo_engine_started_total")


def stopped(server):
    return metric(server, "echo_engine_stopped_total")


def error_of(messages):
    (error,) = [message for message in messages if isinstance(message, Exception)]
    return error


# The answer


def test_an_answer_holds_what_a_reader_needs_and_no_more(server):
    reply = answer(server, text_input="hello there", max_tokens=50)
    assert reply == {
        "model_name": "llm_router",
        "model_version": "1",
        "text_output": "hello there",
        "finish_reason": "stop",
    }


def test_the_stream_is_the_answer_in_pieces_none_of_which_is_broken(server):
    events = events_of(server, text_input=TEXT, max_tokens=200)
    assert "".join(event["text_output"] for event in events) == TEXT
    assert not any("\ufffd" in event["text_output"] for event in events)
    assert [event.get("finish_reason") for event in events] == [None] * (len(events) - 1) + ["stop"]
    assert answer(server, text_input=TEXT, max_tokens=200)["text_output"] == TEXT


def test_a_character_cut_by_the_length_comes_out_once_at_the_end(server):
    events = events_of(server, text_input="👩‍👩‍👧‍👦", max_tokens=2)
    text = "".join(event["text_output"] for event in events)
    assert text == answer(server, text_input="👩‍👩‍👧‍👦", max_tokens=2)["text_output"]
    assert events[-1]["finish_reason"] == "length"


def test_over_grpc_the_last_message_is_final_and_holds_data(server):
    with grpc_stream(server, text_input=TEXT, max_tokens=200, stream=True) as stream:
        messages = list(stream.messages())
    assert [is_final(message) for message in messages] == [False] * (len(messages) - 1) + [True]
    assert messages[-1].as_numpy("finish_reason").flat[0] == b"stop"
    assert "".join(text_of(message) for message in messages) == TEXT


@pytest.mark.parametrize("kind", [echo_repository.FINAL_ALONE, echo_repository.ENDS_EMPTY])
def test_an_engine_may_end_its_stream_in_a_response_of_its_own(server, kind):
    events = events_of(server, text_input="hello", max_tokens=50, seed=1000 * kind)
    assert "".join(event["text_output"] for event in events) == "hello"
    assert events[-1]["finish_reason"] == "stop"


def test_a_short_prompt_goes_to_the_small_engine_and_a_long_one_to_the_large(server):
    short = answer(server, text_input="hello", max_tokens=50, return_route_info=True)
    assert (short["model"], short["reason"]) == (SMALL, "default")
    long = answer(server, text_input="word " * 600, max_tokens=50, return_route_info=True)
    assert (long["model"], long["reason"]) == (LARGE, "long_prompt")


def test_token_counts_are_exact_and_those_of_the_pieces_add_up(server):
    whole = answer(
        server, text_input="one two three", max_tokens=50, return_num_input_tokens=True, return_num_output_tokens=True
    )
    assert whole["num_input_tokens"] == whole["num_output_tokens"] == 3
    events = events_of(server, text_input="one two three", max_tokens=50, return_num_output_tokens=True)
    assert sum(event["num_output_tokens"] for event in events) == 3


def test_what_the_openai_frontend_sends_is_taken(server):
    with grpc_stream(
        server,
        text_input="hello there",
        stream=True,
        max_tokens=16,
        stop_words=[""],
        top_p=1.0,
        frequency_penalty=0.0,
        presence_penalty=0.0,
        seed=0,
        temperature=1.0,
        exclude_input_in_output=True,
        return_num_input_tokens=True,
        return_num_output_tokens=True,
    ) as stream:
        messages = list(stream.messages())
    assert all(message.as_numpy("text_output").shape == (1,) for message in messages)
    assert sum(int(message.as_numpy("num_output_tokens").flat[0]) for message in messages) == 2
    assert int(messages[0].as_numpy("num_input_tokens").flat[0]) == 2


def test_the_echo_is_the_same_streamed_and_not(server):
    given = {"text_input": "hello there", "max_tokens": 50, "exclude_input_in_output": False}
    assert answer(server, **given)["text_output"] == "hello therehello there"
    assert "".join(event["text_output"] for event in events_of(server, **given)) == "hello therehello there"


# Stop words


@pytest.mark.parametrize("word", ["clocks", "世界", "👩‍👧", "ocks were str", "thirteen.", "It"])
def test_the_text_ends_before_a_stop_word_streamed_and_not_and_no_part_of_it_is_shown(server, word):
    given = {"text_input": TEXT, "max_tokens": 200, "stop_words": ["nowhere", word]}
    events = events_of(server, **given)
    wanted = TEXT[: TEXT.index(word)] if word in TEXT else TEXT
    assert "".join(event["text_output"] for event in events) == wanted
    assert events[-1]["finish_reason"] == ("stop_word" if word in TEXT else "stop")
    assert answer(server, **given)["text_output"] == wanted


def test_a_stop_word_stops_the_engine(server):
    before = stopped(server)
    text = "ab cd ef"
    reply = answer(server, text_input=text, max_tokens=5000, stop_words="ef", seed=ENDLESS + 1)
    assert reply["text_output"] == "ab cd "
    eventually(lambda: stopped(server) == before + 1)


def test_a_bad_word_is_never_shown(server):
    reply = answer(server, text_input="so very good", max_tokens=50, bad_words=["very"])
    assert (reply["text_output"], reply["finish_reason"]) == ("so ", "bad_word")


# What is wrong with a request is said in one line that names the field


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"max_tokens": 5}, "[BAD_REQUEST] text_input is missing"),
        ({"max_tokens": 5, "stream": True}, "[BAD_REQUEST] text_input is missing"),
        ({"text_input": "hi"}, "[BAD_REQUEST] max_tokens is missing"),
        ({"text_input": "hi", "max_tokens": 0}, "[BAD_REQUEST] max_tokens is 0; it must be a single value > 0"),
        ({"text_input": "", "max_tokens": 5}, "[BAD_REQUEST] text_input is empty"),
        (
            {"text_input": "hi", "max_tokenz": 5},
            "[BAD_REQUEST] max_tokenz is not an input or parameter of llm_router; did you mean max_tokens?",
        ),
        (
            {"text_input": "hi", "max_tokens": 5, "image_url_input": "x"},
            "[BAD_REQUEST] image_url_input is not supported by llm_router",
        ),
        ({"messages": "[{]", "max_tokens": 5}, "[BAD_REQUEST] messages"),
        ({"text_input": "hi", "max_tokens": 5, "beam_width": 2}, "[BAD_REQUEST] beam_width is 2"),
    ],
)
def test_a_bad_request_is_refused_by_name(server, body, message):
    assert refusal(server, **body).startswith(message)


def test_a_request_without_any_input_is_refused_by_triton_by_name(server):
    assert "missing required input(s) ['max_tokens']" in refusal(server)


def test_a_prompt_over_every_context_is_refused_with_the_numbers_and_starts_no_engine(server):
    before = started(server)
    error = refusal(server, text_input="hi", max_tokens=9000)
    assert error.startswith("[BAD_REQUEST] the prompt has 1 tokens and max_tokens is 9000, together 9001; the context")
    assert started(server) == before


@pytest.mark.parametrize(
    ("values", "prefix"),
    [
        ({"text_input": "hi", "max_tokens": 0}, "[BAD_REQUEST] "),
        ({"text_input": "one two three", "max_tokens": 5, "seed": 1000 * echo_repository.FAILS_FIRST}, "[INTERNAL] "),
    ],
)
def test_grpc_gets_the_class_of_the_error_in_its_message(server, values, prefix):
    # Codes come with the header triton_grpc_error alone, and that may end the server (2.51): see the README.
    with grpc_stream(server, stream=True, **values) as stream:
        error = error_of(stream.messages())
    assert error.message().startswith(prefix)


def test_an_engine_that_breaks_in_mid_stream_ends_the_stream_with_what_was_sent(server):
    given = {"text_input": "one two three four", "max_tokens": 50, "seed": 1000 * echo_repository.FAILS_LATER}
    events = events_of(server, **given)
    assert [event["text_output"] for event in events] == ["one", " two", ""]
    assert events[-1]["finish_reason"] == "engine_error"
    # Without a stream nothing has gone out, and an error says more than half an answer.
    error = refusal(server, **given, stop_words=["nowhere"])
    assert error == "[INTERNAL] the engine failed in mid-stream; the server's log says why"


# Deadlines and clients that leave


@pytest.mark.parametrize("seed", [SILENT, ENDLESS + 50, 1000 * echo_repository.STOP_IS_AN_ERROR])
def test_a_request_ends_at_its_timeout_with_what_it_has_and_its_engine_is_stopped(server, seed):
    before = stopped(server)
    events = events_of(server, text_input="one two", max_tokens=5000, seed=seed, timeout=400_000)
    assert events[-1]["finish_reason"] == "timeout"
    reply = answer(server, text_input="one two", max_tokens=5000, seed=seed, timeout=400_000)
    assert reply["finish_reason"] == "timeout"
    eventually(lambda: stopped(server) == before + 2)


def test_the_timeout_of_grpc_counts_too(server):
    with grpc_stream(
        server, options={"timeout": 400_000}, text_input="hi", max_tokens=5000, seed=SILENT, stream=True
    ) as stream:
        messages = list(stream.messages())
    assert messages[-1].as_numpy("finish_reason").flat[0] == b"timeout"


@pytest.mark.parametrize("seed", [SILENT, ENDLESS + 20])
def test_a_cancelled_grpc_stream_stops_its_engine(server, seed):
    before = started(server), stopped(server)
    with grpc_stream(server, text_input="one two", max_tokens=5000, seed=seed, stream=True) as stream:
        eventually(lambda: started(server) == before[0] + 1)
        stream.cancel()
        eventually(lambda: stopped(server) == before[1] + 1)


def test_a_closed_http_connection_stops_its_engine(server):
    before = stopped(server)
    with event_stream(server, text_input="one two", max_tokens=5000, seed=ENDLESS + 20) as events:
        next(events)
    eventually(lambda: stopped(server) == before + 1)


# EngineFiles that are not there


def test_each_engine_stands_in_for_the_other_and_says_so(server):
    control(server, SMALL, "unload")
    try:
        reply = answer(server, text_input="hello", max_tokens=50, return_route_info=True)
        assert (reply["text_output"], reply["model"], reply["reason"]) == ("hello", LARGE, "small_unavailable")
    finally:
        control(server, SMALL, "load")
    assert answer(server, text_input="hello", max_tokens=50, return_route_info=True)["model"] == SMALL


def test_an_engine_that_fails_before_its_first_token_is_replaced(server):
    before = started(server)
    with pytest.raises(AssertionError, match=r"\[INTERNAL\] told to fail"):
        answer(server, text_input="hello", max_tokens=50, seed=1000 * echo_repository.FAILS_FIRST)
    assert started(server) == before + 2  # Both were tried, each once: the script fails on either.


def test_without_a_tokenizer_the_answer_is_unavailable(server):
    control(server, "preprocessing", "unload")
    try:
        assert refusal(server, text_input="hello", max_tokens=5) == "[UNAVAILABLE] preprocessing is not loaded"
    finally:
        control(server, "preprocessing", "load")


def test_a_stream_under_way_outlives_the_unloading_of_its_engine(server):
    with event_stream(server, text_input="one two three four", max_tokens=40, seed=ENDLESS + 50) as events:
        next(events)
        unloading = threading.Thread(target=control, args=(server, SMALL, "unload"))
        unloading.start()
        rest = list(events)
    unloading.join()
    control(server, SMALL, "load")
    assert rest[-1]["finish_reason"] == "length"


# Many at once


def test_streams_run_beside_each_other(server):
    given = {"text_input": "one two three four five six seven eight", "max_tokens": 20, "seed": ENDLESS + 50}

    def seconds(count):
        begin = time.monotonic()
        with ThreadPoolExecutor(count) as pool:
            for events in pool.map(lambda _: events_of(server, **given), range(count)):
                assert len(events) == 20
        return time.monotonic() - begin

    one = seconds(1)
    assert seconds(16) < 8 * one  # One after the other it would be 16 times.


@pytest.mark.slow
def test_thirty_rounds_of_thirty_two_bursty_streams_all_end(server):
    text = "one two three four five six seven eight nine ten " * 2
    with ThreadPoolExecutor(32) as pool:
        for _ in range(30):
            streams = [pool.submit(events_of, server, text_input=text, max_tokens=50) for _ in range(32)]
            for stream in streams:
                assert "".join(event["text_output"] for event in stream.result(timeout=60)) == text
    assert answer(server, text_input="hello", max_tokens=5)["text_output"] == "hello"


def test_a_mix_of_good_bad_failing_and_left_requests_leaves_the_server_well(server):
    idle(server)

    def one(number):
        if number % 5 == 0:
            return generate(server, text_input="hi", max_tokens=0)[0]
        if number % 5 == 1:
            seed = 1000 * echo_repository.FAILS_LATER
            last = events_of(server, text_input="one two three", max_tokens=9, seed=seed)[-1]
            return last.get("finish_reason") == "engine_error" or "error" in last
        if number % 5 == 2:
            with event_stream(server, text_input="one two", max_tokens=100, seed=ENDLESS + 5) as events:
                return next(events)["text_output"]
        return answer(server, text_input=TEXT, max_tokens=200)["text_output"] == TEXT

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(one, range(400)))
    assert server.process.poll() is None
    idle(server)
    assert answer(server, text_input="hello", max_tokens=5)["text_output"] == "hello"


# Metrics


def test_the_metrics_count_each_request_by_model_reason_and_finish(server):
    name = "llm_router_requests_total"
    series = [
        {"model": SMALL, "reason": "default", "finish": "stop"},
        {"model": SMALL, "reason": "default", "finish": "length"},
        {"model": LARGE, "reason": "long_prompt", "finish": "length"},
        {"model": "none", "reason": "none", "finish": "bad_request"},
    ]
    idle(server)
    before = [metric(server, name, **labels) for labels in series]
    first_tokens = metric(server, "llm_router_time_to_first_token_seconds_count")
    tokens = metric(server, "llm_router_output_tokens_total")
    for _ in range(3):
        answer(server, text_input="one two", max_tokens=5)
    for _ in range(2):
        answer(server, text_input="one two", max_tokens=2)
    answer(server, text_input="word " * 600, max_tokens=2)
    refusal(server, text_input="hi", max_tokens=9000)
    idle(server)
    counted = [metric(server, name, **labels) - old for labels, old in zip(series, before, strict=True)]
    # A request that ends at its length can't be told from one that ended there by itself.
    assert counted == [3, 2, 1, 1]
    assert metric(server, "llm_router_time_to_first_token_seconds_count") - first_tokens == 6
    assert metric(server, "llm_router_output_tokens_total") - tokens == 3 * 2 + 2 * 2 + 2


def test_models_loaded_anew_in_place_keep_the_metrics_and_the_server(server):
    # The old processes end after the new ones have begun, with the same metrics.
    idle(server)
    before = metric(server, "llm_router_requests_total")
    for _ in range(3):
        for model in (SMALL, LARGE):
            load_again_in_place(server, model)
        for _ in range(40):
            answer(server, text_input=TEXT, max_tokens=200)
    eventually(lambda: metric(server, "llm_router_requests_total") == before + 120)
    assert server.process.poll() is None


# Queue


def test_the_queue_serves_by_priority_and_refuses_beyond_its_size(tmp_path):
    repository = echo_repository.make(tmp_path, routers=1, max_queue_size="3")
    with running_server(tmp_path, repository) as server:
        order = []
        given = {"text_input": "one two", "max_tokens": 10, "seed": ENDLESS + 50, "stream": True}

        def run(name, priority):
            with grpc_stream(server, options={"priority": priority}, **given) as stream:
                messages = list(stream.messages())
            order.append(name if not isinstance(messages[-1], Exception) else str(messages[-1]))

        def start(name, priority):
            thread = threading.Thread(target=run, args=(name, priority))
            thread.start()
            return thread

        threads = [start("first", 2)]
        eventually(lambda: started(server) == 1)
        for name, priority in (("low", 3), ("middle", 2), ("high", 1)):
            threads.append(start(name, priority))
            time.sleep(0.1)
        for thread in threads:
            thread.join()
        assert order == ["first", "high", "middle", "low"]

        order.clear()
        threads = [start("first", 2)]
        eventually(lambda: started(server) == 5)
        threads += [start(f"waiting {number}", 2) for number in range(6)]
        for thread in threads:
            thread.join()
        refused = [entry for entry in order if "Exceeds maximum queue size" in entry]
        assert 1 <= len(refused) <= 3
        assert len(order) == 7


def test_accumulated_tokens_repeat_the_text_so_far(tmp_path):
    repository = echo_repository.make(tmp_path, routers=1)
    echo_repository.set_parameter(repository, "llm_router", "accumulate_tokens", "true")
    with running_server(tmp_path, repository) as server:
        events = events_of(server, text_input="one two three", max_tokens=50)
        assert [event["text_output"] for event in events] == ["one", "one two", "one two three", "one two three"]
        assert answer(server, text_input="one two three", max_tokens=50)["text_output"] == "one two three"
