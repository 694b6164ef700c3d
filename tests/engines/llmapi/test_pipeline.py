"""engines/llmapi over its stand-in: what the library does that others don't, and what goes wrong with it."""

import threading
import time

import pytest
from tensorrt_llm import llmapi
from tensorrt_llm.stand_in_engine import DIES, FAILS, FALLS_SILENT, IS_CANCELLED, EngineDied

from bls.errors import EngineFailed, EngineUnavailable
from engines.llmapi import pipeline as module
from engines.llmapi.pipeline import EngineSilent
from engines.triton.coalescer import Pace
from engines.triton.engine import Engine, Periods
from engines.triton.tensors import EngineRequest
from engines.worker.generation import Generation, Guide, Sampling
from engines.worker.scheduler import Scheduler
from tests.fake_pipeline import RememberingSender, ThreadWorker
from tests.llmapi_models import llmapi_pipeline

NO_END = frozenset({49151})
OUTPUTS = frozenset({"output_ids", "sequence_length"})


@pytest.fixture
def make(tmp_path):
    made = []

    def pipeline(**settings):
        made.append(llmapi_pipeline(tmp_path, **settings))
        return made[-1]

    yield pipeline
    for one in made:
        one.close()


def generation(*prompt, max_tokens=4, end_ids=NO_END, **fields):
    return Generation(prompt or (10,), max_tokens, end_ids, **fields)


def run(pipeline, *generations):
    """The ids and the end of requests that run together."""
    scheduler = Scheduler(pipeline, 8)
    for key, one in enumerate(generations):
        scheduler.add(key, one)
    events = []
    while scheduler.is_busy:
        events += scheduler.step()
    mine = [[event for event in events if event.key == key] for key in range(len(generations))]
    ids = [[token for event in one for token in event.ids] for one in mine]
    return ids, [one[-1].ended or str(one[-1].error) for one in mine]


def wait_until(holds):
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.001)


def test_the_cache_is_as_large_as_the_library_says(make):
    pipeline = make(cache_tokens=256)
    assert (pipeline.block_tokens, pipeline.total_blocks) == (32, 8)


def test_a_library_that_does_not_say_it_is_taken_at_its_settings(make, monkeypatch):
    monkeypatch.setattr(llmapi.LLM, "get_stats_async", lambda self, timeout: llmapi._Nothing())
    assert make(cache_tokens=256).total_blocks == 8
    assert make().total_blocks == 4096 // 32
    assert run(make(), generation()) == ([[11, 12, 13, 14]], ["length"])


def test_every_request_is_handed_over_at_once(make):
    pipeline = make(max_batch_size=2)
    ids, ends = run(pipeline, *[generation(10 * key, max_tokens=20) for key in range(1, 7)])
    assert ends == ["length"] * 6
    assert [one[0] for one in ids] == [11, 21, 31, 41, 51, 61]


def test_a_request_that_the_library_fails_fails_alone(make, caplog):
    ids, ends = run(make(), generation(FAILS), generation(10))
    assert ends == ["[INTERNAL] the engine failed at this request; the server's log says why", "length"]
    assert ids[1] == [11, 12, 13, 14]
    assert "no more LoRA slots" in caplog.text


def test_a_request_that_the_library_cancels_unasked_has_failed(make):
    _, ends = run(make(), generation(IS_CANCELLED))
    assert ends == ["[INTERNAL] the engine ended the request (cancelled)"]


def test_what_ends_the_library_ends_the_pipeline(make):
    pipeline = make()
    pipeline.add(0, generation(DIES))
    with pytest.raises(EngineDied):
        while True:
            pipeline.step()
    with pytest.raises(RuntimeError, match="LLM is shutting down"):
        pipeline.add(1, generation())


def test_a_library_that_falls_silent_counts_as_dead(make):
    pipeline = make(longest_step_seconds=0.05)
    pipeline.add(0, generation(FALLS_SILENT))
    with pytest.raises(EngineSilent, match="no news of 1 requests for"):
        while True:
            pipeline.step()


def test_a_long_pause_before_a_request_is_no_silence(make):
    pipeline = make(longest_step_seconds=0.5)
    time.sleep(0.6)
    assert run(pipeline, generation())[1] == ["length"]


def test_a_cancelled_request_is_read_to_its_end(make):
    pipeline = make()
    scheduler = Scheduler(pipeline, 8)
    scheduler.add(0, generation(max_tokens=2000))
    while not scheduler.step():
        pass
    assert scheduler.stop(0)[0].ended == "stopped"
    wait_until(lambda: len(pipeline._readers) == 1)  # The one that stays keeps the figures.
    while scheduler.is_busy:
        assert scheduler.step() == []


def test_each_of_several_end_ids_ends_it_and_is_left_out(make):
    pipeline = make()
    for end_id in (12, 13):
        ids, ends = run(pipeline, generation(end_ids=frozenset({end_id, 1, 48000})))
        assert (ids, ends) == ([list(range(11, end_id))], ["end_id"])


def test_min_tokens_with_several_end_ids_is_refused_with_a_way_out(make):
    _, ends = run(make(), generation(end_ids=frozenset({1, 2}), min_tokens=3))
    assert ends == [
        "[BAD_REQUEST] min_tokens is 3; this engine can only hold back one end id, and the model has 2: give end_id too"
    ]


@pytest.mark.parametrize("word", [(13,), (12, 13), (11, 12, 13)])
def test_a_stop_word_of_any_length_is_the_last_of_the_ids(make, word):
    ids, ends = run(make(), generation(max_tokens=100, stop_words=((40, 41), word)))
    assert (ids, ends) == ([[11, 12, 13]], ["stop_word"])


def test_a_stop_word_may_come_together_with_the_end(make, monkeypatch):
    """What was computed behind it, up to the request's own end, is in the same step."""
    monkeypatch.setattr(module, "_LONGEST_WAIT_SECONDS", 0.0)
    pipeline = make()
    scheduler = Scheduler(pipeline, 8)
    scheduler.add(0, generation(max_tokens=6, stop_words=((13, 14),)))
    events = scheduler.step()
    wait_until(lambda: len(pipeline._readers) == 1)
    while scheduler.is_busy:
        events += scheduler.step()
    assert [token for event in events for token in event.ids] == [11, 12, 13, 14]
    assert events[-1].ended == "stop_word"


def test_log_probabilities_are_those_of_the_ids_that_were_taken(make):
    scheduler = Scheduler(make(), 8)
    scheduler.add(0, generation(max_tokens=9, end_ids=frozenset({13}), log_probs=True))
    events = []
    while scheduler.is_busy:
        events += scheduler.step()
    assert [value for event in events for value in event.log_probs] == [-0.011, -0.012]


def test_a_prompt_that_the_library_refuses_is_the_clients_fault(make):
    _, ends = run(make(chunked_context=False, max_num_tokens=8, max_batch_size=8), generation(*range(100, 109)))
    refusal = "The sum of prompt length (9) should not exceed max_num_tokens"
    assert ends == [f"[BAD_REQUEST] refused by TensorRT-LLM: {refusal}"]


def test_a_guide_without_a_backend_is_refused_by_name(make):
    _, ends = run(make(), generation(guide=Guide("regex", "[0-9]{3}")))
    assert ends == [
        "[BAD_REQUEST] guided_decoding_guide_type is 'regex'; this engine has no guided_decoding_backend (config.pbtxt)"
    ]


def test_penalties_are_refused_where_the_sampler_would_ignore_them(make):
    pipeline = make(sampler_type="TorchSampler")
    _, ends = run(pipeline, generation(sampling=Sampling(repetition_penalty=1.3)), generation())
    assert ends == [
        "[BAD_REQUEST] repetition_penalty is 1.3; this engine supports 1 only (sampler_type TorchSampler in its "
        "config.pbtxt)",
        "length",
    ]


def test_figures_come_while_it_runs_and_stand_still_afterwards(make):
    pipeline = make()
    scheduler = Scheduler(pipeline, 8)
    for key in range(3):
        scheduler.add(key, generation(max_tokens=100))

    def figure(kind):
        return {(one.family, one.kind): one.value for one in pipeline.figures()}[kind]

    while figure(("request", "scheduled")) < 3:
        scheduler.step()
    assert pipeline.used_blocks() == 12
    while scheduler.is_busy:
        scheduler.step()
    assert figure(("request", "scheduled")) == pipeline.used_blocks() == 0
    assert figure(("general", "iteration_counter")) > 0


def test_the_wait_for_news_ends_when_nothing_runs(make):
    assert make().step() == []


def stream(*prompt, max_tokens=4, streaming=True):
    return EngineRequest(generation(*prompt, max_tokens=max_tokens), streaming, True)


@pytest.fixture
def engine(make):
    published = []
    made = Engine(
        lambda: ThreadWorker(make()), Pace(), Periods(cancellation=0.01, statistics=0.01), publish=published.append
    )
    made.published = published
    yield made
    made.close()


def submit(engine, request, request_id=""):
    sender = RememberingSender()
    engine.submit(request_id, request, OUTPUTS, sender)
    return sender


def test_streams_and_whole_answers_hold_the_same_ids(engine):
    streamed, whole = submit(engine, stream(10)), submit(engine, stream(10, streaming=False))
    assert streamed.ids() == whole.ids() == [11, 12, 13, 14]
    assert len(whole.responses) == 1
    assert (streamed.ends, whole.ends) == (1, 1)


def test_stop_ends_its_own_request_alone(engine):
    stopped, other = submit(engine, stream(10, max_tokens=3000), "a"), submit(engine, stream(20), "b")
    assert stopped.got_one.wait(10)
    engine.stop("a")
    assert 0 < len(stopped.ids()) < 3000
    assert (stopped.ends, stopped.error) == (1, None)
    assert other.ids() == [21, 22, 23, 24]


def test_a_client_that_left_frees_its_cache(engine):
    sender = submit(engine, stream(10, max_tokens=3000))
    assert sender.got_one.wait(10)
    sender.left = True
    assert sender.ended.wait(10)
    assert str(sender.error) == "[CANCELLED] the client left"
    submit(engine, stream(10)).ids()
    engine.close()
    assert (engine.published[-1].active, engine.published[-1].used_blocks) == (0, 0)


def test_an_engine_that_died_fails_its_requests_and_is_started_again(engine):
    senders = [submit(engine, stream(first, max_tokens=1000)) for first in (10, 20, DIES)]
    for sender in senders:
        assert sender.ended.wait(10)
        assert isinstance(sender.error, EngineFailed)
    for _ in range(1000):
        try:
            assert submit(engine, stream(10)).ids() == [11, 12, 13, 14]
            return
        except EngineUnavailable:
            threading.Event().wait(0.01)
    raise AssertionError("the engine never came back")
