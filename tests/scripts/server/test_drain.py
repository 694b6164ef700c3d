from __future__ import annotations

from scripts.server.drain import in_flight

ROUTER = 'nv_inference_pending_request_count{{model="llm_router",version="1"}} {0}\nllm_router_requests_in_flight {1}\n'
ENGINE = 'nv_trt_llm_request_metrics{{model="tensorrt_llm_small",request_type="{0}",version="1"}} {1}\n'


def test_requests_in_flight_are_those_that_wait_and_those_that_are_answered():
    assert in_flight(ROUTER.format(0, 0)) == 0
    assert in_flight(ROUTER.format(2, 3)) == 5


def test_what_engines_elsewhere_do_for_all_their_clients_does_not_keep_this_server():
    page = ROUTER.format(1, 0) + ENGINE.format("active", 7)
    assert in_flight(page, has_engines=False) == 1


def test_what_an_engine_is_asked_for_directly_counts_too_and_its_limits_do_not():
    page = ROUTER.format(0, 0) + ENGINE.format("active", 1) + ENGINE.format("max", 32) + ENGINE.format("waiting", 0)
    assert in_flight(page) == 1
