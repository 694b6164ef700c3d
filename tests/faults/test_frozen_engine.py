"""An engine that stands still: it may hold so many router processes, and the rest of the endpoint goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from bls.contract import SMALL
from tests.faults import victims
from tests.faults.asking import Ask, Doors
from tests.faults.load import REFUSED, SHORT, Load
from tests.faults.repository import copy

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(400)]

CLIENTS, THEIR_PATIENCE_S = 34, 3.0
LARGE_TIER = Ask("large", "generate", {"text_input": "Name a river.", "tier": "large", **SHORT})
NO_ENGINE = Ask("refused", "generate", {"text_input": REFUSED, **SHORT})
SMALL_TIER = Ask("small", "generate_stream", {"text_input": "Name a lake.", "tier": "small", "stream": True, **SHORT})


@contextmanager
def frozen(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):  # The server may have ended what stood still too long.
                os.kill(pid, signal.SIGCONT)


def crowd_that_gives_up(server) -> None:
    doors = Doors(server, patience_s=THEIR_PATIENCE_S)
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(lambda _: doors.ask(SMALL_TIER), range(CLIENTS)))
    doors.close()


def test_a_frozen_engine_holds_up_neither_refusals_nor_the_other_tier(serve, tmp_path):
    server = serve(repository=copy(tmp_path))
    doors = Doors(server)
    assert doors.ask(LARGE_TIER).result == "answered"  # An engine's first answer takes long.
    doors.close()
    with Load(server, streams=0, rate=4, mix=(LARGE_TIER, NO_ENGINE)) as load:
        load.fault("small engine running")
        calm = load.watch(8)
    workers = victims.engine_workers(server, SMALL)
    with Load(server, streams=0, rate=4, mix=(LARGE_TIER, NO_ENGINE)) as load, frozen(workers):
        load.fault("small engine frozen, 34 clients that give up after 3 s")
        crowd_that_gives_up(server)
        report = load.watch(10)
    for kind in ("large", "refused"):
        before, during = calm.of(kind), report.of(kind)
        print(f"{kind}: p50 {before.latency_s(50):.2f} to {during.latency_s(50):.2f} s,", end=" ")
        print(f"p99 {before.latency_s(99):.2f} to {during.latency_s(99):.2f} s")
    assert report.lost == 0
