"""Tiers on machines of their own, as real servers on addresses of their own: a router, two small engine servers and a
large one. All engines echo, so that each token and its time are known; what breaks them is real.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from bls.contract import LARGE, SMALL
from engines.remote.names import EJECTED, ERRORS
from tests.faults import victims
from tests.server import echo_repository, freezing
from tests.server.clients import answer, event_stream, events_of, generate, grpc_stream, idle, metric
from tests.server.echo_repository import ENDLESS, SILENT
from tests.server.remote_tiers import HOSTS, EngineServer, router_repository
from tests.server.serving import free_ports, running_server
from tests.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

SMALLS = ("small-1", "small-2")
LONG = {"max_tokens": 250, "seed": ENDLESS * 1000 + 20}  # 5 s
TO_THE_LARGE = {"text_input": "one two three", "max_tokens": 300, "seed": 1}  # Beyond the small tier's answers.


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """`router`, and `engines` by name; all run, and each test leaves them so."""
    folder = tmp_path_factory.mktemp("remote")
    ports = tuple(free_ports(3))
    repository = echo_repository.make(folder / "engines")
    with ExitStack() as stack:
        engines = {}
        for name in (*SMALLS, "large"):
            tier = name.partition("-")[0]
            engines[name] = EngineServer(folder, repository, HOSTS[name], ports, f"--tier={tier}")
            stack.callback(engines[name].end)
        pool = stack.enter_context(ThreadPoolExecutor())
        starting = [pool.submit(engine.start) for engine in engines.values()]
        smalls = ",".join(engines[name].endpoint for name in SMALLS)
        flags = (f"--remote=small={smalls}", f"--remote=large={engines['large'].endpoint}")
        # Without a slow start, in which keys are the other endpoints'.
        models = router_repository(folder / "router", ports[2], routers=14, slow_start_seconds="0")
        router = stack.enter_context(running_server(folder, models, *flags))
        for start in starting:
            start.result()
        assert eventually(lambda: metric(router, EJECTED) == 0, 60)
        yield SimpleNamespace(router=router, engines=engines, repository=repository)


@pytest.fixture(autouse=True)
def all_is_well(world: Any) -> Iterator[None]:
    yield
    for engine in world.engines.values():
        if engine.server is None:
            engine.start()
    for engine in world.engines.values():
        assert eventually(lambda engine=engine: is_used(world, engine), 30)
    idle(world.router)


def is_used(world: Any, engine: EngineServer) -> bool:
    return metric(world.router, EJECTED, endpoint=engine.endpoint) == 0


def started(engine: EngineServer) -> float:
    return metric(engine.running, "echo_engine_started_total")


def stopped(engine: EngineServer) -> float:
    return metric(engine.running, "echo_engine_stopped_total")


def answered_by(world: Any, **body: Any) -> str:
    """The engine model that answered."""
    reply = answer(world.router, return_route_info=True, **body)
    return str(json.loads(reply["route_info"])["model"])


def last_of(world: Any, text: str) -> tuple[int, dict[str, Any]]:
    """How many tokens a long stream had, and its last event."""
    events = events_of(world.router, text_input=text, return_num_output_tokens=True, **LONG)
    return sum(event.get("num_output_tokens", 0) for event in events), events[-1]


def streams(world: Any, pool: ThreadPoolExecutor, count: int) -> list[Future[Any]]:
    """So many long streams, each of which runs."""
    before = sum(started(world.engines[name]) for name in SMALLS)
    asked = [pool.submit(last_of, world, f"stream {number}") for number in range(count)]
    assert eventually(lambda: sum(started(world.engines[name]) for name in SMALLS) == before + count)
    return asked


def is_an_error(event: dict[str, Any]) -> bool:
    return event.get("finish_reason") == "engine_error" or "[INTERNAL]" in event.get("error", "")


def test_each_tier_answers_through_the_router_as_if_it_were_here(world):
    assert answer(world.router, text_input="one two three", max_tokens=20)["text_output"] == "one two three"
    pieces = events_of(world.router, text_input="one two three", max_tokens=20)
    assert "".join(event["text_output"] for event in pieces) == "one two three"
    assert answered_by(world, text_input="one two three", max_tokens=20) == SMALL
    assert answered_by(world, **TO_THE_LARGE) == LARGE
    assert started(world.engines["large"]) >= 1
    assert metric(world.router, "nv_trt_llm_request_metrics", model=SMALL, request_type="active") == 0


def test_every_series_of_an_endpoint_is_there_from_the_beginning(world):
    engine = world.engines["large"]
    for error in ("unreachable", "lost", "busy", "failed", "mismatch"):
        assert metric(world.router, ERRORS, model=LARGE, endpoint=engine.endpoint, error=error) >= 0
    assert f"{EJECTED}" in page(world) and page(world).count(f"{ERRORS}{{") == 5 * 3


def page(world: Any) -> str:
    import urllib.request

    with urllib.request.urlopen(world.router.metrics_url) as response:
        return str(response.read().decode())


def test_a_client_that_leaves_a_silent_engine_or_is_timed_out_stops_it_on_its_server(world):
    before = sum(stopped(world.engines[name]) for name in SMALLS)
    begun = sum(started(world.engines[name]) for name in SMALLS)
    with grpc_stream(world.router, text_input="one", max_tokens=20, seed=SILENT * 1000, stream=True) as stream:
        assert eventually(lambda: sum(started(world.engines[name]) for name in SMALLS) == begun + 1)
        stream.cancel()
        assert eventually(lambda: sum(stopped(world.engines[name]) for name in SMALLS) == before + 1)
    status, reply = generate(world.router, text_input="one", max_tokens=20, seed=SILENT * 1000, timeout=500_000)
    assert (status, reply.get("finish_reason")) == (200, "timeout") or "[TIMEOUT]" in reply["error"]
    assert eventually(lambda: sum(stopped(world.engines[name]) for name in SMALLS) == before + 2)


def test_a_stop_word_stops_the_engine_on_its_server(world):
    before = sum(stopped(world.engines[name]) for name in SMALLS)
    reply = answer(world.router, text_input="one two three", stop_words=["two"], **LONG)
    assert reply["finish_reason"] == "stop_word"
    assert eventually(lambda: sum(stopped(world.engines[name]) for name in SMALLS) == before + 1)


def test_the_policy_falls_back_while_the_large_tier_is_gone_and_uses_it_soon_after_it_is_back(world):
    assert answered_by(world, **TO_THE_LARGE) == LARGE
    world.engines["large"].kill()
    assert [answered_by(world, **TO_THE_LARGE) for _ in range(8)] == [SMALL] * 8
    assert metric(world.router, "llm_router_breakers_opened_total", model=LARGE) == 0
    world.engines["large"].start()
    began = time.monotonic()
    assert eventually(lambda: answered_by(world, **TO_THE_LARGE) == LARGE)
    print(f"the large tier is used {time.monotonic() - began:.1f} s after it is back")


def test_a_server_that_is_killed_takes_its_own_streams_alone_and_each_of_them_ends_typed(world):
    victim = world.engines["small-1"]
    with ThreadPoolExecutor(8) as pool:
        mine = -started(victim)
        asked = streams(world, pool, 8)
        mine += started(victim)
        victim.kill()
        assert answered_by(world, text_input="one", max_tokens=4) == SMALL
        ends = [future.result(60) for future in asked]
    lost = [event for _, event in ends if is_an_error(event)]
    whole = [tokens for tokens, event in ends if event.get("finish_reason") == "length"]
    assert (len(lost), len(whole)) == (mine, 8 - mine) and mine > 0
    assert set(whole) == {250}


def test_a_server_that_is_frozen_ends_its_streams_and_is_used_again_when_it_moves(world):
    victim = world.engines["small-2"]
    with ThreadPoolExecutor(8) as pool:
        mine = -started(victim)
        asked = streams(world, pool, 8)
        mine += started(victim)
        began = time.monotonic()
        freezing.freeze(victim.running.supervisor_pid)
        try:
            ends = [future.result(60) for future in asked]
            print(f"streams of a frozen server end after {time.monotonic() - began:.1f} s")
            assert not is_used(world, victim)
        finally:
            freezing.thaw(victim.running.supervisor_pid)
    assert sum(is_an_error(event) for _, event in ends) == mine > 0
    assert eventually(lambda: is_used(world, victim))


def test_a_server_that_drains_ends_its_streams_well_and_no_request_fails(world):
    victim = world.engines["small-1"]
    with ThreadPoolExecutor(10) as pool:
        mine = -started(victim)
        asked = streams(world, pool, 8)
        mine += started(victim)
        ending = pool.submit(victim.drain)
        while not ending.done():
            assert answered_by(world, text_input="one two", max_tokens=4) == SMALL
        ends = [future.result(60) for future in asked]
        assert ending.result() == 0
    assert mine > 0
    assert [(tokens, event.get("finish_reason")) for tokens, event in ends] == [(250, "length")] * 8
    victim.close()


def test_a_server_with_another_model_is_refused_by_name(world):
    engine = world.engines["large"]
    manifest = world.repository.parent / "engines" / "built" / "large" / "engine.json"
    text = manifest.read_text()
    engine.kill()
    try:
        manifest.unlink()  # A link to the checkout's.
        manifest.write_text(json.dumps({**json.loads(text), "name": "another"}))
        engine.start()
        assert eventually(lambda: metric(world.router, ERRORS, endpoint=engine.endpoint, error="mismatch") == 1, 10)
        assert answered_by(world, **TO_THE_LARGE) == SMALL
        said = f"{engine.endpoint} of {LARGE} is not used: it serves another model than this server's {LARGE}: "
        assert f"{said}its name is another, and here it is SmolLM2-135M-Instruct" in world.router.log.read_text()
    finally:
        engine.kill()
        manifest.write_text(text)
    engine.start()
    assert eventually(lambda: answered_by(world, **TO_THE_LARGE) == LARGE, 10)


def test_prompts_with_the_same_two_blocks_go_to_the_same_server_and_each_server_has_some(world):
    owned = dict.fromkeys(SMALLS, 0)  # Prefixes.
    prefixes = answered = 0
    while min(owned.values()) < 6:  # Of 12 or so, by the servers' addresses.
        assert prefixes < 100, owned
        before = {name: started(world.engines[name]) for name in SMALLS}
        for ending in range(3):
            answer(world.router, text_input=f"{prefixes} says {'plan ' * 80}{ending}", max_tokens=1)
        shares = {name: started(world.engines[name]) - before[name] for name in SMALLS}
        assert sum(shares.values()) == 3
        owner = max(SMALLS, key=shares.__getitem__)
        owned[owner] += 1
        answered += shares[owner]
        prefixes += 1
    assert answered >= 0.95 * 3 * prefixes


def test_a_stream_left_by_its_reader_ends_on_its_server(world):
    before = sum(stopped(world.engines[name]) for name in SMALLS)
    with event_stream(world.router, text_input="one two", **LONG) as events:
        next(events)
    assert eventually(lambda: sum(stopped(world.engines[name]) for name in SMALLS) == before + 1)


@pytest.mark.slow
def test_the_process_that_forwards_may_die_and_is_replaced(world):
    with ThreadPoolExecutor(8) as pool:
        asked = streams(world, pool, 6)
        (stub,) = victims.stubs(world.router, SMALL)
        os.kill(stub, signal.SIGKILL)
        ends = [future.result(120) for future in asked]
    assert all(is_an_error(event) or "[UNAVAILABLE]" in event.get("error", "") for _, event in ends), ends
    assert eventually(lambda: "model llm_router is loaded anew" in world.router.console.read_text(), 120)
    assert eventually(lambda: answered_by(world, text_input="one two", max_tokens=4) == SMALL, 60)
