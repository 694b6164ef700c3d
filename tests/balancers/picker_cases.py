"""Real Envoy and a stand-in for the endpoint picker of the Gateway API Inference Extension, in front of two servers.

The picker decides by nothing but what each gateway's /metrics says. See tests/balancers/endpoint_picker.py.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import astuple
from pathlib import Path

import pytest

from bls.contract import LARGE, SMALL
from scripts.host import processes
from tests.balancers import programs
from tests.balancers.conftest import print_with_load
from tests.balancers.endpoint_picker import Endpoint, EndpointPicker, Specs, read
from tests.balancers.load import BODY, Stream, ask, at_once
from tests.gateway.gateway_process import ask as http
from tests.server.echo_repository import ENDLESS
from tests.server.serving import free_ports
from tests.waiting import eventually

TEMPLATE = Path(__file__).with_name("envoy_with_picker.yaml")
# The policy sends long answers to the large tier. Both last until they are left.
OF_TIER = {SMALL: {**BODY, "max_tokens": 250}, LARGE: {**BODY, "max_tokens": 4000}}
BUILT_IN = Specs()
ENDLESSLY = {"seed": ENDLESS * 1000 + 900}


@contextmanager
def picking(pods, folder, specs=BUILT_IN):
    """A picker that has read both pods, and the port of the Envoy that asks it."""
    endpoints = [Endpoint(pod.host, pod.ports["gateway"]) for pod in pods]
    (port,) = free_ports(1)
    with EndpointPicker(endpoints, specs) as picker:
        text = TEMPLATE.read_text()
        filled = {"PICKER_PORT": picker.port, "OPENAI_PORT": port, "GATEWAY_PORT": pods[0].ports["gateway"]}
        for name, value in {**filled, "POD_1": pods[0].host, "POD_2": pods[1].host}.items():
            text = text.replace(name, str(value))
        assert eventually(lambda: all(endpoint.is_fit for endpoint in endpoints), 60)
        with programs.started("envoy", folder / "envoy.yaml", text, port):
            yield picker, port


@contextmanager
def saturated(pod, model, streams=2):
    """So many answers of that engine are under way or wait."""
    body = {**OF_TIER[model], **ENDLESSLY}
    with ExitStack() as stack:
        before = pod.count("started")
        for _ in range(streams):
            stream = Stream(pod.ports["gateway"], body, pod.host)
            stack.callback(stream.leave)
            stream.send()
        assert eventually(lambda: pod.count("started") == before + streams)
        yield


def first_tier(endpoint):
    """The engine whose series come first on the page, which are those that the built-in specifications find.

    It is not the same one on all pods: Triton writes them in the order in which its models came to be.
    """
    places = {model: endpoint.page.index(f'nv_trt_llm_request_metrics{{model="{model}"') for model in OF_TIER}
    return min(places, key=lambda model: places[model])


def own_cpu_seconds(pid):
    """User and system time of the process alone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


class PickerCases:
    """For a test module that has `pods`."""

    @pytest.fixture(autouse=True)
    def one_place(self, pods):
        """Each engine runs one request at a time, so a second one waits."""
        for pod in pods:
            pod.turn(places=1)
        assert eventually(lambda: all(pod.in_flight == 0 for pod in pods))
        yield
        for pod in pods:
            pod.turn()

    def test_the_built_in_specifications_find_their_figures_on_the_gateways_page(self, pods, tmp_path):
        with picking(pods, tmp_path) as (picker, _):
            for endpoint in picker.endpoints:
                found = [read(endpoint.page, spec) for spec in astuple(picker.specs)]
                assert found == [0.0, 0.0, 0.0]
                for kind in ("tokens_per", "max"):
                    assert (
                        read(endpoint.page, f"nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type={kind}}}") or 0
                    ) > 0

    def test_the_next_requests_go_past_a_pod_that_is_saturated(self, pods, tmp_path):
        with picking(pods, tmp_path) as (picker, port):
            for busy, idle, endpoint in zip(pods, reversed(pods), picker.endpoints, strict=True):
                with saturated(busy, first_tier(endpoint)):
                    assert eventually(lambda endpoint=endpoint: endpoint.queued == 1)
                    before, already = idle.count("started"), len(picker.picked)
                    assert [ask(port).is_whole for _ in range(3)] == [True] * 3
                    assert picker.picked[already:] == [f"{idle.host}:{idle.ports['gateway']}"] * 3
                    assert idle.count("started") == before + 3
                assert eventually(lambda endpoint=endpoint: endpoint.queued == 0)

    def test_of_two_tiers_on_a_page_the_built_in_specifications_see_the_first_alone(self, pods, tmp_path):
        """docs/scale-out.md tells the specifications that name the tier."""
        with picking(pods, tmp_path) as (picker, _):
            endpoint = picker.endpoints[0]
            other = LARGE if first_tier(endpoint) == SMALL else SMALL
            with saturated(pods[0], other):
                by_tier = BUILT_IN.of_tier(other)
                assert eventually(lambda: read(endpoint.page, by_tier.queued) == 1)
                assert endpoint.queued == 0
        with picking(pods, tmp_path, by_tier) as (picker, port), saturated(pods[0], other):
            assert eventually(lambda: picker.endpoints[0].queued == 1)
            already = len(picker.picked)
            assert ask(port).is_whole
            assert picker.picked[already:] == [f"{pods[1].host}:{pods[1].ports['gateway']}"]

    def test_streams_come_through_piece_by_piece_and_a_client_that_leaves_stops_its_engine(self, pods, tmp_path):
        with picking(pods, tmp_path) as (_, port):
            whole = at_once([lambda: ask(port, {**BODY, "max_tokens": 5})] * 4)
            assert all(outcome.is_whole for outcome in whole) and min(outcome.pieces for outcome in whole) >= 5
            assert eventually(lambda: all(pod.in_flight == 0 for pod in pods))
            before = sum(pod.count("stopped") for pod in pods)
            Stream(port, {**OF_TIER[LARGE], **ENDLESSLY, "seed": ENDLESS * 1000 + 20}).begin().leave()
            assert eventually(lambda: sum(pod.count("stopped") for pod in pods) == before + 1)

    def test_where_no_pod_is_ready_the_answer_is_503_at_once(self, pods, tmp_path):
        with picking(pods, tmp_path) as (picker, port):
            try:
                for pod in pods:
                    http(pod.ports["admin"], "POST", "/drain", None, {}, pod.host)
                assert eventually(lambda: picker.pick() is None)
                refused = ask(port)
                assert (refused.status, refused.error) == (503, "HTTP 503: no pod is ready")
            finally:
                for pod in pods:
                    http(pod.ports["admin"], "POST", "/undrain", None, {}, pod.host)
            assert eventually(lambda: picker.pick() is not None)
            assert ask(port).is_whole

    @pytest.mark.slow
    def test_what_it_costs_to_be_scraped_twenty_times_a_second(self, pods, tmp_path):
        """Prints the processor time; the promise is the page, which must have kept up."""
        endpoints = [Endpoint(pod.host, pod.ports["gateway"]) for pod in pods]
        pids = processes.tree(pods[0].server.supervisor_pid)
        parts = {
            "gateway": next(pid for pid in pids if "scripts.gateway" in processes.command(pid)),
            "scripts/serve": pods[0].server.supervisor_pid,
            "tritonserver": pods[0].server.server_pid,
        }

        def spent():
            return {name: own_cpu_seconds(pid) for name, pid in parts.items()}

        quiet, seconds = spent(), 20.0
        time.sleep(seconds)
        before = spent()
        with EndpointPicker(endpoints) as picker:
            assert eventually(lambda: all(endpoint.is_fit for endpoint in endpoints))
            began, scraped = time.monotonic(), endpoints[0].scrapes
            time.sleep(seconds)
            rate = (endpoints[0].scrapes - scraped) / (time.monotonic() - began)
            assert picker.pick() is not None
        after = spent()
        for name in parts:
            idle, busy = before[name] - quiet[name], after[name] - before[name]
            share, size = 100 * (busy - idle) / seconds, len(endpoints[0].page) / 1024
            print_with_load(
                f"{name}: {share:.1f} % of a core for {rate:.0f} scrapes and checks a second, {size:.0f} KiB"
            )
