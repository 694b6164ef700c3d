"""engines/worker/scheduler.py over a pipeline that counts."""

import pytest

from engines.worker.generation import Generation
from engines.worker.scheduler import Scheduler
from tests.fake_pipeline import REFUSED_ID, CountingPipeline

NO_END = frozenset({1000})


def generation(*prompt, max_tokens=4, **fields):
    return Generation(prompt=prompt or (1,), max_tokens=max_tokens, end_ids=fields.pop("end_ids", NO_END), **fields)


def run(scheduler):
    events = []
    while scheduler.is_busy:
        events += scheduler.step()
    return events


def ids(events, key):
    return [token for event in events if event.key == key for token in event.ids]


def end(events, key):
    (last,) = [event for event in events if event.key == key and event.is_last]
    return last.ended


def test_a_request_ends_with_its_length():
    scheduler = Scheduler(CountingPipeline(), 4)
    scheduler.add(0, generation(10, max_tokens=3))
    events = run(scheduler)
    assert (ids(events, 0), end(events, 0)) == ([11, 12, 13], "length")


def test_the_end_id_ends_a_request_and_is_not_in_its_ids():
    scheduler = Scheduler(CountingPipeline(), 4)
    scheduler.add(0, generation(10, end_ids=frozenset({13})))
    events = run(scheduler)
    assert (ids(events, 0), end(events, 0)) == ([11, 12], "end_id")


def test_a_stop_word_ends_a_request_with_its_own_ids():
    pipeline = CountingPipeline()
    scheduler = Scheduler(pipeline, 4)
    scheduler.add(0, generation(10, max_tokens=9, stop_words=((40, 41), (12, 13))))
    events = run(scheduler)
    assert (ids(events, 0), end(events, 0)) == ([11, 12, 13], "stop_word")
    assert pipeline.running == {}


def test_a_stop_word_counts_with_the_last_id_too():
    scheduler = Scheduler(CountingPipeline(), 4)
    scheduler.add(0, generation(10, max_tokens=2, stop_words=((12,),)))
    assert end(run(scheduler), 0) == "stop_word"


def test_in_flight_a_request_joins_a_running_batch():
    pipeline = CountingPipeline()
    scheduler = Scheduler(pipeline, 4)
    scheduler.add(0, generation(max_tokens=3))
    scheduler.step()
    scheduler.add(1, generation(max_tokens=3))
    run(scheduler)
    assert pipeline.batches[:3] == [(0,), (0, 1), (0, 1)]


def test_in_v1_a_batch_runs_to_its_longest_before_the_next_starts():
    pipeline = CountingPipeline()
    scheduler = Scheduler(pipeline, 2, in_flight=False)
    for key, max_tokens in enumerate((1, 3, 1)):
        scheduler.add(key, generation(max_tokens=max_tokens))
    run(scheduler)
    assert pipeline.batches[:4] == [(0, 1), (1,), (1,), (2,)]


def test_no_more_requests_compute_than_fit_into_a_batch():
    pipeline = CountingPipeline(total_blocks=100)
    scheduler = Scheduler(pipeline, 2)
    for key in range(5):
        scheduler.add(key, generation())
    run(scheduler)
    assert max(map(len, pipeline.batches)) == 2


@pytest.mark.parametrize(("no_evict", "together"), [(True, 1), (False, 2)])
def test_without_eviction_a_request_waits_until_its_whole_cache_is_free(no_evict, together):
    pipeline = CountingPipeline(total_blocks=3, block_tokens=4)
    scheduler = Scheduler(pipeline, 4, no_evict=no_evict)
    scheduler.add(0, generation(max_tokens=7))
    scheduler.add(1, generation(max_tokens=7))
    scheduler.step()
    assert len(pipeline.running) == together
    assert scheduler.statistics().active == 2


def test_a_stopped_request_ends_and_its_blocks_are_free():
    pipeline = CountingPipeline()
    scheduler = Scheduler(pipeline, 4)
    scheduler.add(0, generation(10, max_tokens=7))
    scheduler.step()
    assert scheduler.statistics().used_blocks == 2
    assert end(scheduler.stop(0), 0) == "stopped"
    assert run(scheduler) == []
    assert scheduler.statistics().used_blocks == 0


def test_a_request_that_still_waits_can_be_stopped():
    scheduler = Scheduler(CountingPipeline(), 1)
    scheduler.add(0, generation())
    scheduler.add(1, generation())
    scheduler.step()
    assert end(scheduler.stop(1), 1) == "stopped"
    assert ids(run(scheduler), 1) == []


def test_stopping_an_unknown_request_does_nothing():
    assert Scheduler(CountingPipeline(), 1).stop(7) == []


def test_what_the_pipeline_refuses_fails_alone():
    scheduler = Scheduler(CountingPipeline(), 4)
    scheduler.add(0, generation(REFUSED_ID))
    scheduler.add(1, generation(10))
    events = run(scheduler)
    assert [str(event.error) for event in events if event.error] == ["[BAD_REQUEST] refused by the pipeline"]
    assert ids(events, 1) == [11, 12, 13, 14]


def test_statistics_tell_requests_without_a_token_from_those_with_one():
    scheduler = Scheduler(CountingPipeline(), 1)
    scheduler.add(0, generation())
    scheduler.add(1, generation())
    scheduler.step()
    now = scheduler.statistics()
    assert (now.active, now.scheduled, now.context, now.most) == (2, 1, 0, 1)
