"""The gateway on the real server, in front of engines whose every token is known."""

from __future__ import annotations

import pytest

from tests.gateway.cases import LONG, PROMPT, GatewayCases
from tests.gateway.gateway_process import opened, running
from tests.gateway.nvidia_cases import NvidiaChatCases, NvidiaCompletionCases
from tests.server import echo_repository
from tests.server.clients import control, metric
from tests.server.serving import running_server
from tests.server.trace_collector import collecting
from tests.waiting import eventually

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def collector():
    with collecting() as found:
        yield found


@pytest.fixture(scope="module")
def echoes(tmp_path_factory, collector):
    folder = tmp_path_factory.mktemp("echo")
    with running_server(folder, echo_repository.make(folder, routers=6), *collector.flags) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(echoes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gateway")
    with running(folder, echoes.grpc_url, f"--triton-metrics={echoes.metrics_url}") as process:
        yield process


class TestOnTheRealServer(GatewayCases, NvidiaChatCases, NvidiaCompletionCases):
    @pytest.fixture(autouse=True)
    def with_gateway(self, gateway, echoes):
        self.gateway, self.server = gateway, echoes

    def stopped(self):
        return metric(self.server, "echo_engine_stopped_total")

    def started(self):
        return metric(self.server, "echo_engine_started_total")


def test_its_metrics_have_tritons_page_and_its_own(gateway):
    page = gateway.get("/metrics").text
    assert "nv_inference_request_success" in page and "llm_router_requests_total" in page
    assert "llm_gateway_requests_total" in page


def test_a_request_waits_while_the_router_is_unloaded_and_streams_that_were_left_do_not_keep_it(gateway, echoes):
    from concurrent.futures import ThreadPoolExecutor

    for _ in range(6):
        body = {"model": "auto", "prompt": PROMPT, "stream": True, **LONG}
        with opened(gateway.port, "/v1/completions", body) as left:
            left.readline()
        assert gateway.complete(PROMPT, stream=True).events[-1] == "[DONE]"
    assert eventually(lambda: metric(echoes, "llm_router_requests_in_flight") == 0)
    control(echoes, "llm_router", "unload")
    assert gateway.get("/ready").status == 503
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(gateway.complete, PROMPT, stream=stream) for stream in (False, True) * 2]
        assert eventually(lambda: gateway.metric("llm_gateway_parked") == 4)
        control(echoes, "llm_router", "load")
        assert [future.result().status for future in waiting] == [200] * 4


def test_tritons_spans_belong_to_the_trace_of_the_request(gateway, collector):
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    assert gateway.post("/v1/completions", {"model": "auto", "prompt": PROMPT}, **headers).status == 200
    assert eventually(lambda: trace.encode() in collector.spans or bytes.fromhex(trace) in collector.spans)


def test_tokens_are_counted_as_the_router_counts_them(gateway):
    body = {"model": "auto", "messages": [{"role": "user", "content": PROMPT}]}
    counted = gateway.post("/v1/messages/count_tokens", body).json["input_tokens"]
    assert counted == gateway.post("/v1/messages", {**body, "max_tokens": 50}).json["usage"]["input_tokens"] > 5
    assert counted == gateway.chat(PROMPT).json["usage"]["prompt_tokens"]
