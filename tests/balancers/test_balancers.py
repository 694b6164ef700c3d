"""Envoy, HAProxy and nginx, as deploy/balancers/ configures them, in front of two real servers."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from tests.balancers.conftest import print_with_load
from tests.balancers.load import Grpc, Load, Stream, ask, at_once, lasting
from tests.balancers.picker_cases import PickerCases
from tests.balancers.programs import CONFIGS
from tests.server import freezing
from tests.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
each_balancer = pytest.mark.parametrize("name", CONFIGS)
LONG = lasting(4000, 20)


@contextmanager
def by_grpc(*balancers):
    with ExitStack() as stack:
        found = [Grpc(balancer.grpc_url) for balancer in balancers]
        for each in found:
            stack.callback(each.close)
        yield found


def counts(pods, what):
    return [pod.count(what) for pod in pods]


def differences(before, after):
    return [int(later - earlier) for earlier, later in zip(before, after, strict=True)]


def idle(pods):
    assert eventually(lambda: all(pod.in_flight == 0 for pod in pods), 60)


@each_balancer
def test_streams_are_spread_by_how_many_run(name, pods, balancers):
    idle(pods)
    before = counts(pods, "started")
    with ExitStack() as stack:
        for _ in range(8):
            stream = Stream(balancers[name].openai, LONG).begin()
            stack.callback(stream.leave)
        shares = differences(before, counts(pods, "started"))
    assert sorted(shares) in ([4, 4], [3, 5])


@each_balancer
def test_a_client_that_leaves_stops_the_engine_through_the_balancer(name, pods, balancers):
    idle(pods)
    before = sum(counts(pods, "stopped"))
    stream = Stream(balancers[name].openai, LONG).begin()
    left = time.monotonic()
    stream.leave()
    assert eventually(lambda: sum(counts(pods, "stopped")) == before + 1)
    print_with_load(f"{name}: the engine stopped {1000 * (time.monotonic() - left):.0f} ms after its client had left")


@each_balancer
def test_tritons_own_grpc_streams_come_through_whole_and_stop_when_they_are_left(name, pods, balancers):
    with by_grpc(balancers[name]) as (client,):
        assert client.ask(pieces=5).is_whole
        idle(pods)
        before = sum(counts(pods, "stopped"))
        call = client.begin(LONG["max_tokens"], 20)
        next(call)
        call.cancel()
        assert eventually(lambda: sum(counts(pods, "stopped")) == before + 1)


def test_a_pod_that_is_restarted_under_load_loses_nothing(pods, balancers):
    """Through each balancer at once, OpenAI's API; what runs past the gateways, by gRPC, ends too."""
    idle(pods)
    asks = [partial(ask, balancer.openai, lasting(20, 20)) for balancer in balancers.values() for _ in range(2)]
    with (
        by_grpc(*balancers.values()) as clients,
        Load([*asks, *(partial(client.ask, 20, 20) for client in clients)]) as load,
    ):
        status = restart(pods[1], balancers)
    print_with_load(f"{len(load.outcomes)} streams while a pod restarted, {sum(load.failures.values())} not whole")
    assert status == 0 and not load.failures
    assert not any("cut off" in pod.said for pod in pods)


def restart(pod, balancers):
    """The exit status of the one that ended; returns when each balancer sends to the next one."""
    status = pod.stop()
    pod.start()
    for balancer in balancers.values():
        assert balancer.reaches(pod)
    return status


def test_a_pod_that_dies_takes_its_own_streams_and_no_others(pods, balancers):
    idle(pods)
    before = counts(pods, "started")
    with ExitStack() as stack:
        streams = []
        for balancer in balancers.values():
            streams += [Stream(balancer.openai, LONG).begin() for _ in range(2)]
        shares = differences(before, counts(pods, "started"))
        assert sum(shares) == len(streams) and min(shares) > 0
        pool = stack.enter_context(ThreadPoolExecutor(len(streams)))
        endings = [pool.submit(stream.finish) for stream in streams]
        for stream in streams:
            stack.callback(stream.leave)
        pods[1].kill()
        stack.callback(pods[1].start)
        news = at_once([partial(ask, balancer.openai) for balancer in balancers.values() for _ in range(4)])
        assert eventually(lambda: sum(ending.done() for ending in endings) == shares[1], 60)
        assert pods[0].in_flight == shares[0]
        told = {ending.result().error for ending in endings if ending.done()}
    print_with_load(f"{shares[1]} of {len(streams)} streams were lost with their pod, each told {' or '.join(told)}")
    assert "" not in told
    assert all(outcome.is_whole for outcome in news), [outcome for outcome in news if not outcome.is_whole]
    for balancer in balancers.values():
        assert balancer.reaches(pods[1])


@pytest.mark.slow
@each_balancer
def test_a_frozen_pod_is_gone_by_and_what_it_had_goes_on_with_it(name, pods, balancers):
    idle(pods)
    outcomes, answered = [], threading.Semaphore(0)

    def one():
        outcomes.append(ask(balancers[name].openai))
        answered.release()

    running = [Stream(balancers[name].openai, lasting(40, 20)).begin() for _ in range(4)]
    freezing.freeze(pods[1].pid)
    try:
        threads = [threading.Thread(target=one, daemon=True) for _ in range(24)]
        for number, thread in enumerate(threads):
            thread.start()
            if number >= 8:  # these are answered one by one, in spite of those that met the frozen pod
                assert answered.acquire(timeout=60)
        assert eventually(lambda: pods[0].in_flight == 0, 60)
        met_it = len(threads) - len(outcomes)
    finally:
        freezing.thaw(pods[1].pid)
    for thread in threads:
        thread.join(60)
    print_with_load(f"{name}: {met_it} of {len(threads)} requests met the frozen pod, and waited for it")
    assert len(outcomes) == len(threads) and all(outcome.is_whole for outcome in outcomes)
    assert all(stream.finish().is_whole for stream in running)


class TestEndpointPicker(PickerCases):
    """In front of the same servers."""
