"""A tier in bad weather: its servers are killed, frozen, drained and filled up while clients ask, stop and leave."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from contextlib import ExitStack

import pytest

from bls.errors import Busy, Cancelled, EngineFailed, NotLoaded, TimedOut
from scripts.bench.local_server import free_ports
from tests.engine_server import EngineServer
from tests.engines.remote.clients import ask
from tests.engines.remote.test_tier import IDENTITY, tier_of
from tests.server.echo_repository import ENDLESS, SILENT
from tests.waiting import eventually

SECONDS = float(os.environ.get("LLM_ROUTER_WEATHER_SECONDS", 60))
TYPED = (Busy, Cancelled, EngineFailed, NotLoaded, TimedOut)
HOSTS = ("127.0.1.11", "127.0.1.12", "127.0.1.13")


def make_weather(servers, ended):
    chance = random.Random(1)
    while not ended.wait(chance.uniform(0.2, 1.5)):
        server = chance.choice(servers)
        what = chance.choice(("kill", "freeze", "busy", "ready", "draining", "truncated"))
        if what == "kill":
            server.kill()
            ended.wait(chance.uniform(0, 2))
            server.start()
        elif what == "freeze":
            server.freeze()
            ended.wait(chance.uniform(0, 9))
            server.thaw()
        else:
            server.set(**{what: int(what != "ready")})
            ended.wait(chance.uniform(0, 1))
            server.set(**{what: int(what == "ready")})


def live(tier, chance, number):
    """One request, with its stop or its client's leaving."""
    kind = chance.choice(("short", "short", "long", "silent", "timeout"))
    script = {"short": 2, "long": ENDLESS * 1000 + 20}.get(kind, SILENT * 1000)
    client = ask(
        tier,
        [number % 17 + 1] * chance.choice((3, 64)),
        tokens=chance.choice((4, 100)),
        script=script,
        request_id=f"request-{number}",
        errors_as_data=chance.random() < 0.5,
        timeout_seconds=0.5 if kind == "timeout" else None,
    )
    if kind in ("long", "silent"):
        time.sleep(chance.uniform(0, 0.5))
        if chance.random() < 0.5:
            tier.stop(f"request-{number}")
        else:
            client.has_left = True
    return client


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 200)
def test_whatever_happens_each_stream_ends_once_and_typed_and_nothing_is_left():
    ports, ended, clients = free_ports(2), threading.Event(), []
    with ExitStack() as stack:
        servers = [stack.enter_context(EngineServer(*ports, host=host, identity=IDENTITY)) for host in HOSTS]
        tier = stack.enter_context(tier_of(*servers, silent_seconds=5))
        weather = threading.Thread(target=make_weather, args=(servers, ended))

        def ask_on(seed):
            chance = random.Random(seed)
            for number in range(seed * 100_000, (seed + 1) * 100_000):
                if ended.is_set():
                    return
                clients.append(live(tier, chance, number))
                time.sleep(chance.uniform(0, 0.05))

        asking = [threading.Thread(target=ask_on, args=(seed,)) for seed in range(4)]
        before = descriptors()
        for thread in (weather, *asking):
            thread.start()
        time.sleep(SECONDS)
        ended.set()
        for thread in (weather, *asking):
            thread.join()
        for client in clients:
            client.wait()
        ends = Counter(type(client.error).__name__ for client in clients)
        print(f"{len(clients)} requests: {dict(ends)}")
        assert all(client.ends == 1 for client in clients)
        assert all(client.error is None or isinstance(client.error, TYPED) for client in clients)
        assert ends["NoneType"] > len(clients) / 4
        assert eventually(lambda: tier.look(lambda pool: sum(each.in_flight for each in pool.all())) == 0)
        assert eventually(lambda: sum(server.told()["running"] for server in servers) == 0)
        assert eventually(lambda: not tier._ids and descriptors() <= before + 8)
