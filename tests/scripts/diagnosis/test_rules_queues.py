from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls.contract import PREPROCESSING, ROUTER, SMALL
from scripts.diagnosis.rules import judge
from scripts.diagnosis.sample import Model
from scripts.host.footprint import ROUTER_PROCESS_MB
from tests.doctor_cases import IN_FLIGHT, PENDING, did, finding, names, observed, unsure


def test_a_queue_that_grows_is_told_with_the_time_that_is_left():
    router = Model(ROUTER, max_queue_size=50, priority_levels=2)
    seen = observed({PENDING % ROUTER: [0, 5, 10, 15, 20, 25, 30, 35]}, models=[router])
    assert (
        finding(seen, "queue_growing").figure
        == "0 -> 35 requests waited, 5.0 more each second; it will be full in 13 s"
    )


@pytest.mark.parametrize(
    "waiting", [[30] * 8, [35, 30, 25, 20, 15, 10, 5, 0], [0, 1, 2, 3, 4, 5, 6, 9], [0, 30, 0, 30, 0, 30, 0, 30]]
)
def test_a_queue_that_is_long_shrinks_or_comes_and_goes_does_not_grow(waiting):
    assert "queue_growing" not in names(observed({PENDING % ROUTER: waiting}, models=[Model(ROUTER)]))


@given(st.lists(st.integers(0, 40), min_size=6, max_size=12))
def test_no_queue_grows_that_ends_no_longer_than_it_began(waiting):
    waiting[-1] = min(waiting)
    assert "queue_growing" not in names(observed({PENDING % "a": waiting}, looks=len(waiting), models=[Model("a")]))


def test_a_queue_at_its_limit_refuses_unseen():
    small = Model(SMALL, max_queue_size=16)
    assert finding(observed({PENDING % SMALL: [3, 16, 2]}, looks=3, models=[small]), "queue_full").subject == SMALL
    assert names(observed({PENDING % SMALL: [3, 15, 2]}, looks=3, models=[small])) == []
    assert names(observed({PENDING % SMALL: [3, 999, 2]}, looks=3, models=[replace(small, max_queue_size=0)])) == []


def test_requests_whose_queue_timeout_ran_out_are_told_with_it():
    series = {f'nv_inference_request_failure{{model="{ROUTER}",reason="REJECTED"}}': (2, 5)}
    seen = observed(series, models=[Model(ROUTER, queue_timeout_us=30_000_000)])
    assert (
        finding(seen, "rejections").figure == "3 requests were rejected because their queue timeout of 30 s had passed"
    )


@pytest.mark.parametrize(("delay_us", "said"), [(200_000_000, True), (100_001, True), (100_000, False), (0, False)])
def test_a_delay_of_more_than_a_tenth_of_a_second_is_too_long(delay_us, said):
    assert ("queue_delay_long" in names(observed(models=[Model(SMALL, queue_delay_us=delay_us)]))) == said


@pytest.mark.parametrize(
    ("delay_us", "requests", "executions", "said"),
    [(5000, 60, 60, True), (5000, 60, 55, True), (5000, 66, 60, False), (5000, 240, 60, False), (0, 60, 60, False)],
)
def test_a_delay_that_brings_no_company_is_useless(delay_us, requests, executions, said):
    model = Model("a", max_batch_size=8, has_batcher=True, queue_delay_us=delay_us)
    seen = observed(models=[model], counts={"a": did(requests, executions, wait_ms=delay_us / 1000)})
    assert ("queue_delay_useless" in names(seen)) == said


def test_too_few_executions_judge_no_delay_and_no_batch():
    model = Model("a", max_batch_size=8, has_batcher=True, queue_delay_us=5000)
    seen = observed(models=[model], counts={"a": did(29, wait_ms=500)})
    assert names(seen) == [] and {"queue_delay_useless", "batches_of_one"} <= unsure(seen)
    assert unsure(observed(models=[model], counts={"a": did(0)})) == set()


@pytest.mark.parametrize(
    ("batcher", "size", "requests", "wait_ms", "key"),
    [
        (False, 8, 40, 30, "dynamic_batching"),
        (True, 8, 40, 30, "input.allow_ragged_batch"),
        (True, 8, 40, 20, None),  # as long as an execution takes: the one before it
        (True, 8, 80, 30, None),  # in twos
        (False, 1, 40, 30, None),  # it takes no batches
    ],
)
def test_requests_that_wait_for_a_model_that_could_batch_them(batcher, size, requests, wait_ms, key):
    model = Model("a", max_batch_size=size, has_batcher=batcher, instances=2)
    seen = observed(models=[model], counts={"a": did(requests, 40, wait_ms, work_ms=20)})
    assert [each.key for each in judge(seen)[0] if each.name == "batches_of_one"] == ([key] if key else [])


@pytest.mark.parametrize(
    ("instances", "wait_ms", "work_ms", "said"),
    [(1, 101, 1, True), (1, 99, 1, False), (1, 101, 150, False), (2, 101, 1, False)],
)
def test_one_instance_that_lets_requests_wait_while_it_is_free(instances, wait_ms, work_ms, said):
    model = Model("a", max_batch_size=1, has_batcher=True, instances=instances)
    seen = observed(models=[model], counts={"a": did(40, wait_ms=wait_ms, work_ms=work_ms)})
    assert ("single_instance_stalls" in names(seen)) == said


@pytest.mark.parametrize("limit", ["max_queue_size", "priority_levels", "queue_timeout_us"])
def test_an_instance_that_is_noticed_late_is_cured_by_a_queue_without_limits(limit):
    counts = {"a": did(40, wait_ms=101, work_ms=1)}
    for model, key in [
        (Model("a", has_batcher=True), "instance_group.count"),
        (Model("a", has_batcher=True, **{limit: 9}), "dynamic_batching.default_queue_policy"),
    ]:
        found = judge(observed(models=[model], counts=counts))[0]
        assert [each.key for each in found if each.name == "single_instance_stalls"] == [key]


@pytest.mark.parametrize(("work_ms", "wait_ms", "said"), [(150, 6, True), (150, 4, False), (130, 6, False)])
def test_tokenizers_that_are_always_busy_are_too_few(work_ms, wait_ms, said):
    model = Model(PREPROCESSING, max_batch_size=64, has_batcher=True, instances=1)
    seen = observed(models=[model], counts={PREPROCESSING: did(120, 40, wait_ms, work_ms)})
    assert ("too_few_tokenizers" in names(seen)) == said
    if said:
        assert finding(seen, "too_few_tokenizers").change.startswith("2, ")


@pytest.mark.parametrize(("in_flight", "waiting", "said"), [(4, 6, True), (4, 0, False), (3, 6, False)])
def test_routers_that_all_answer_while_others_wait_are_too_few(in_flight, waiting, said):
    series = {IN_FLIGHT: in_flight, PENDING % ROUTER: waiting}
    seen = observed(series, models=[Model(ROUTER, instances=4)])
    assert ("too_few_routers" in names(seen)) == said
    if said:
        assert finding(seen, "too_few_routers").change.startswith(f"10, which takes another {6 * ROUTER_PROCESS_MB} MB")
    assert ("too_few_routers" in unsure(observed(series, looks=4, models=[Model(ROUTER, instances=4)]))) == said


@pytest.mark.parametrize(("in_flight", "turned_away", "said"), [(36, 10, True), (36, 9, False), (35, 10, False)])
def test_routers_whose_places_are_all_taken_while_others_are_turned_away_are_too_few(in_flight, turned_away, said):
    busy = 'llm_router_requests_total{model="none",reason="none",finish="busy"}'
    series = {IN_FLIGHT: in_flight, PENDING % ROUTER: 0, busy: (0, turned_away)}
    seen = observed(series, models=[Model(ROUTER, instances=40)])
    assert ("too_few_routers" in names(seen)) == said
    if said:
        assert finding(seen, "too_few_routers").change.startswith("50, ")
