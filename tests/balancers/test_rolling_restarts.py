"""Both pods restarted in turn, three times, under load through each balancer: nothing fails, nothing is cut short."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import pytest

from tests.balancers.conftest import print_with_load
from tests.balancers.load import Grpc, Load, ask, lasting
from tests.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1200)]
ROUNDS = 3


def restart(pod, balancers):
    status = pod.stop()
    pod.start()
    for balancer in balancers.values():
        assert balancer.reaches(pod)
    return status


@pytest.mark.parametrize("lame_duck_s", [2, 0])
def test_rolling_restarts_lose_nothing(lame_duck_s, pods, balancers):
    """Without a lame duck's time the balancers' second try saves a request; Triton's gRPC has none on a connection that
    is open."""
    assert eventually(lambda: all(pod.in_flight == 0 for pod in pods), 60)
    asks = [partial(ask, balancer.openai, lasting(30, 20)) for balancer in balancers.values() for _ in range(2)]
    with ExitStack() as stack:
        if lame_duck_s:
            for balancer in balancers.values():
                client = Grpc(balancer.grpc_url)
                stack.callback(client.close)
                asks.append(partial(client.ask, 30, 20))
        load = stack.enter_context(Load(asks))
        statuses = []
        for _ in range(ROUNDS):
            for pod in pods:
                pod.flags = ("--drain-seconds=60", f"--lame-duck-s={lame_duck_s}")
                statuses.append(restart(pod, balancers))
    print_with_load(
        f"{len(load.outcomes)} streams during {len(statuses)} restarts, lame duck {lame_duck_s} s: "
        f"{sum(load.failures.values())} not whole {dict(load.failures) or ''}"
    )
    assert statuses == [0] * len(statuses)
    assert not load.failures
