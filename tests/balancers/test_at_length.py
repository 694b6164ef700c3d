"""Each balancer in front of two real servers, with many streams: shares, a slow pod, silence, a death under load."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest

from tests.balancers.conftest import print_with_load
from tests.balancers.load import BODY, Grpc, Stream, ask, at_once, lasting
from tests.balancers.programs import CONFIGS
from tests.server.echo_repository import ENDLESS
from tests.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]
each_balancer = pytest.mark.parametrize("name", CONFIGS)
ROUTERS = 40  # of each pod: 64 streams run at a time, and there is room for more
STREAMS, AT_A_TIME = 400, 32
SILENT_S = 90
LONG = lasting(20, 100)


def started(pods):
    return [pod.count("started") for pod in pods]


def shares_of(pods, before):
    """Percent of the requests since then."""
    counts = [later - earlier for later, earlier in zip(started(pods), before, strict=True)]
    return [100 * count / sum(counts) for count in counts]


def idle(pods):
    assert eventually(lambda: all(pod.in_flight == 0 for pod in pods), 60)


def ask_many(port):
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return list(pool.map(lambda _: ask(port, lasting(40, 20)), range(STREAMS)))


@each_balancer
def test_two_pods_that_are_alike_get_as_many(name, pods, balancers):
    idle(pods)
    before = started(pods)
    outcomes = ask_many(balancers[name].openai)
    shares = shares_of(pods, before)
    print_with_load(f"{name}: {shares[0]:.1f} % and {shares[1]:.1f} % of {STREAMS} streams")
    assert all(outcome.is_whole for outcome in outcomes)
    assert min(shares) >= 45


@each_balancer
def test_a_pod_that_is_ten_times_slower_gets_less_than_a_quarter(name, pods, balancers):
    idle(pods)
    pods[1].turn(slowdown=10)
    try:
        before = started(pods)
        outcomes = ask_many(balancers[name].openai)
        shares = shares_of(pods, before)
    finally:
        pods[1].turn()
    print_with_load(f"{name}: {shares[1]:.1f} % of {STREAMS} streams for the slow pod")
    assert all(outcome.is_whole for outcome in outcomes)
    assert shares[1] < 25


def test_an_answer_that_takes_90_seconds_in_silence_arrives(pods, balancers):
    """Not streamed, so that no byte comes before its end; by both APIs, through all balancers at once."""
    idle(pods)
    step_ms, pieces = 900, SILENT_S * 1000 // 900
    whole = {**BODY, "stream": False, "max_tokens": pieces, "seed": ENDLESS * 1000 + step_ms}
    with ExitStack() as stack:
        clients = [Grpc(balancer.grpc_url) for balancer in balancers.values()]
        for client in clients:
            stack.callback(client.close)
        began = time.monotonic()
        outcomes = at_once(
            [partial(ask, balancer.openai, whole) for balancer in balancers.values()]
            + [partial(client.ask, pieces, step_ms, False) for client in clients]
        )
    print_with_load(f"{len(outcomes)} answers of {time.monotonic() - began:.0f} s, each in one piece")
    assert time.monotonic() - began >= SILENT_S
    assert all(outcome.is_whole for outcome in outcomes), outcomes


@each_balancer
@pytest.mark.parametrize("api", ["openai", "grpc"])
def test_a_pod_that_dies_under_64_streams_takes_its_own_alone(api, name, pods, balancers):
    """The others end whole."""
    idle(pods)
    assert all(balancers[name].reaches(pod) for pod in pods)  # the one that was killed for another balancer, too
    port = balancers[name].openai
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(64))
        for pod in pods:
            pod.turn(held=LONG["max_tokens"])
            stack.callback(pod.turn)  # before the pool's end, which waits for all
        if api == "grpc":
            client = Grpc(balancers[name].grpc_url)
            stack.callback(client.close)
            before = started(pods)
            assert eventually(lambda: client.ask(1).is_whole and min(shares_of(pods, before)) > 0, 60)
            idle(pods)
            calls = [client.begin(LONG["max_tokens"], 100) for _ in range(64)]
            at_once([partial(next, call) for call in calls])
            ends, again = [partial(client.outcome, call) for call in calls], client.ask
        else:
            streams = at_once([Stream(port, LONG).begin for _ in range(64)])
            ends, again = [stream.finish for stream in streams], partial(ask, port)
        counts = [int(pod.in_flight) for pod in pods]
        assert sum(counts) == 64
        endings = [pool.submit(end) for end in ends]
        killed = time.monotonic()
        pods[1].kill()
        stack.callback(pods[1].start)
        news = at_once([again] * 32)
        answered_s = time.monotonic() - killed
        assert eventually(lambda: sum(ending.done() for ending in endings) == counts[1], 60)
        ended_s = time.monotonic() - killed
        told = {ending.result().error for ending in endings if ending.done()}
        pods[0].turn()
        kept = [outcome.finish for ending in endings if (outcome := ending.result()).is_whole]
    print_with_load(
        f"{name}, {api}: {counts[1]} of 64 streams lost within {ended_s:.1f} s, told {' or '.join(sorted(told))}; "
        f"32 new ones answered within {answered_s:.1f} s"
    )
    assert "" not in told
    assert kept == ["length"] * counts[0]
    assert all(outcome.is_whole for outcome in news), [outcome for outcome in news if not outcome.is_whole]
    assert balancers[name].reaches(pods[1])
