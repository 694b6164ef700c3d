"""A tier before engine servers of its own, which are killed, frozen, drained and brought back while it is asked."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from bls.errors import BadRequest, Busy, Cancelled, EngineFailed, NotLoaded, TimedOut
from engines.remote import endpoint
from engines.remote.pool import Pool
from engines.remote.settings import Address, RemoteParameters
from engines.remote.tier import Tier
from scripts.bench.local_server import free_ports
from tests.engine_server import EngineServer
from tests.engines.remote.clients import ask
from tests.server.echo_repository import ENDLESS, FAILS_FIRST, FAILS_LATER, SILENT
from tests.waiting import eventually

MODEL = "tensorrt_llm_large"
OWN = {"name": "a-model", "tokenizer": "1" * 64}
IDENTITY = '{"name": "a-model", "tokenizer": "%s"}' % ("1" * 64)
HOSTS = ("127.0.1.1", "127.0.1.2")
SLOW = ENDLESS * 1000 + 20
IDS = [5, 6, 7]


@pytest.fixture(scope="module")
def ports():
    return free_ports(2)


@pytest.fixture(scope="module")
def both(ports):
    with ExitStack() as stack:
        yield [stack.enter_context(EngineServer(*ports, host=host, identity=IDENTITY)) for host in HOSTS]


@pytest.fixture
def servers(both):
    for server in both:
        server.reset()
    return both


def settings_of(*servers, **more):
    endpoints = tuple(Address(server.host, server.grpc_port) for server in servers)
    given = RemoteParameters(endpoints, servers[0].metrics_port, slow_start_seconds=0, silent_seconds=5)
    return replace(given, **more)


@contextmanager
def tier_of(*servers, make_pool=Pool, **more):
    tier = Tier(MODEL, OWN, settings_of(*servers, **more), make_pool)
    try:
        yield tier
    finally:
        tier.close()


@pytest.fixture
def tier(servers):
    with tier_of(*servers) as made:
        yield made


def why_not(tier):
    """By endpoint."""
    return tier.look(lambda pool: {each.name: each.why_not for each in pool.all()})


def errors_of(tier, server):
    return tier.look(lambda pool: next(dict(each.errors) for each in pool.all() if each.name == server.name))


def owner(servers, clients_ids):
    """Which server was asked for a prompt that begins so."""
    return next(server for server in servers if clients_ids[:4] in server.told()["ids"])


def test_what_is_asked_for_comes_back_in_order(tier):
    client = ask(tier, list(range(50)), script=1).wait()
    assert (client.ids, client.error, client.ends) == (list(range(50)), None, 1)


def test_prompts_with_the_same_beginning_meet_the_same_server_and_both_have_their_share(tier, servers):
    for prefix in range(60):
        for ending in range(3):
            ask(tier, [prefix + 1] * 64 + [ending], tokens=1).wait()
    by_server = [Counter(ids[0] for ids in server.told()["ids"]) for server in servers]
    assert all(not (by_server[0].keys() & by_server[1].keys()) for _ in "x")
    assert sorted(by_server[0].keys() | by_server[1].keys()) == list(range(1, 61))
    assert max(sum(each.values()) for each in by_server) <= 1.3 * 90


def test_prompts_at_a_time_that_begin_alike_are_shared_once_one_server_has_its_share(tier, servers):
    clients = [ask(tier, [7] * 64 + [number], tokens=1000, script=SLOW) for number in range(16)]
    for client in clients:
        client.wait_for_ids(1)
    assert sorted(server.told()["running"] for server in servers) == [6, 10]


def test_a_server_that_has_others_waiting_gets_less(tier, servers):
    servers[0].set(waiting=1000)
    assert eventually(lambda: tier.look(lambda pool: max(each.candidate().load for each in pool.all())) >= 1000)
    for _ in range(10):
        ask(tier, IDS, tokens=1).wait()
    assert servers[0].told()["started"] == 0


@pytest.mark.parametrize("errors_as_data", [False, True])
def test_a_server_that_is_killed_ends_its_streams_alone_and_each_hears_why(tier, servers, errors_as_data):
    clients = [
        ask(tier, [number + 1] * 64, tokens=2000, script=SLOW, errors_as_data=errors_as_data) for number in range(12)
    ]
    for client in clients:
        client.wait_for_ids(2)
    dead, _ = servers
    theirs = [client for client in clients if [client.ids[0]] * 4 in dead.told()["ids"]]
    dead.kill()
    for client in theirs:
        client.wait()
        assert client.ends == 1
        assert client.failed_as_data if errors_as_data else isinstance(client.error, EngineFailed)
    others = [client for client in clients if client not in theirs]
    assert theirs and others
    before = [len(client.ids) for client in others]
    for client, count in zip(others, before, strict=True):
        client.wait_for_ids(count + 5)
    assert not any(client.has_ended for client in others)
    assert [ask(tier, [9] * 64, tokens=3).wait().error for _ in range(10)] == [None] * 10
    assert errors_of(tier, dead)["lost"] == len(theirs)


def test_a_server_that_comes_back_is_used_again(tier, servers):
    servers[0].kill()
    assert eventually(lambda: why_not(tier)[servers[0].name] != "")
    servers[0].start()
    began = time.monotonic()
    assert eventually(lambda: why_not(tier)[servers[0].name] == "")
    print(f"used again after {time.monotonic() - began:.1f} s")
    for _ in range(4):
        ask(tier, IDS, tokens=1).wait()
    assert servers[0].told()["started"] >= 1


def test_without_any_server_the_error_is_one_that_a_router_falls_back_for_at_no_cost(tier, servers):
    for server in servers:
        server.kill()
    error = ask(tier, IDS).wait().error
    assert isinstance(error, NotLoaded)
    assert str(error).startswith(f"[UNAVAILABLE] {MODEL} is not ready on any engine server")
    assert HOSTS[0] not in str(error)


def test_a_tier_whose_servers_come_later_begins_without_them(ports):
    server = EngineServer(*ports, host="127.0.1.3", identity=IDENTITY)
    with tier_of(server) as tier:
        assert isinstance(ask(tier, IDS).wait().error, NotLoaded)
        with server:
            assert eventually(lambda: why_not(tier)[server.name] == "")
            assert ask(tier, IDS).wait().ids == IDS


def test_a_frozen_server_ends_its_streams_and_is_used_again_when_it_moves(tier, servers):
    frozen, alive = servers
    clients = [ask(tier, [number + 1] * 64, tokens=5000, script=SLOW) for number in range(8)]
    silent = [ask(tier, [number + 50] * 64, script=SILENT * 1000) for number in range(8)]
    for client in clients:
        client.wait_for_ids(1)
    assert eventually(lambda: sum(server.told()["running"] for server in servers) == 16)
    theirs = [client for client in clients if [client.ids[0]] * 4 in frozen.told()["ids"]]
    frozen.freeze()
    try:
        assert theirs
        for client in theirs:
            assert isinstance(client.wait().error, EngineFailed)
        # Those without a token have gone to the other server.
        assert eventually(lambda: alive.told()["running"] == 16 - len(theirs))
        assert not any(client.has_ended for client in silent)
        assert ask(tier, IDS, tokens=1).wait().error is None
    finally:
        frozen.thaw()
    assert eventually(lambda: why_not(tier)[frozen.name] == "")
    assert eventually(lambda: frozen.told()["running"] == 0)


def test_a_stop_reaches_the_server_and_ends_the_stream_without_an_error(tier, servers):
    clients = [ask(tier, IDS, script=SILENT * 1000, request_id="silent"), ask(tier, IDS, 5000, SLOW, "talks")]
    clients[1].wait_for_ids(2)
    assert eventually(lambda: sum(server.told()["running"] for server in servers) == 2)
    for name, client in zip(("silent", "talks"), clients, strict=True):
        tier.stop(name)
        assert client.wait().error is None
    assert eventually(lambda: sum(server.told()["stopped"] for server in servers) == 2)
    assert sum(server.told()["cancelled"] for server in servers) == 0


def test_a_stop_that_comes_at_once_reaches_the_server_all_the_same(tier, servers):
    clients = [ask(tier, IDS, script=SILENT * 1000, request_id=f"request {number}") for number in range(40)]
    for number in range(40):
        tier.stop(f"request {number}")
    assert [client.wait().error for client in clients] == [None] * 40
    assert eventually(lambda: sum(server.told()["running"] for server in servers) == 0)
    assert sum(server.told()["cancelled"] for server in servers) == 0


def test_a_stop_ends_the_stream_of_a_frozen_server_too(tier, servers):
    client = ask(tier, IDS, script=SILENT * 1000, request_id="a")
    assert eventually(lambda: sum(server.told()["running"] for server in servers) == 1)
    holder = next(server for server in servers if server.told()["running"])
    holder.freeze()
    try:
        tier.stop("a")
        assert client.wait().error is None
    finally:
        holder.thaw()


def test_a_client_that_leaves_stops_the_server(tier, servers):
    client = ask(tier, IDS, tokens=5000, script=SLOW)
    client.wait_for_ids(2)
    client.has_left = True
    assert isinstance(client.wait().error, Cancelled)
    assert eventually(lambda: sum(server.told()["stopped"] for server in servers) == 1)


def test_an_id_that_runs_already_is_refused_and_free_again_at_its_end(tier):
    first = ask(tier, IDS, script=SILENT * 1000, request_id="a")
    with pytest.raises(BadRequest, match="'a' is running already"):
        ask(tier, IDS, request_id="a")
    tier.stop("a")
    first.wait()
    assert eventually(lambda: not tier._ids)
    assert ask(tier, IDS, request_id="a").wait().ids == IDS


def test_a_timeout_is_passed_on_and_ends_the_stream(tier, servers):
    client = ask(tier, IDS, script=SILENT * 1000, timeout_seconds=0.5).wait()
    assert isinstance(client.error, TimedOut)
    assert eventually(lambda: sum(server.told()["running"] for server in servers) == 0)


def test_a_busy_server_is_passed_over_and_where_all_are_busy_the_client_hears_it(tier, servers):
    servers[0].set(busy=1)
    assert [ask(tier, IDS).wait().error for _ in range(6)] == [None] * 6
    assert errors_of(tier, servers[0])["busy"] >= 1
    servers[1].set(busy=1)
    assert isinstance(ask(tier, IDS).wait().error, Busy)


def test_an_engine_that_says_it_is_away_is_passed_over_and_where_all_are_a_router_falls_back(tier, servers):
    servers[0].set(unavailable=1)
    assert [ask(tier, IDS).wait().error for _ in range(6)] == [None] * 6
    servers[1].set(unavailable=1)
    assert isinstance(ask(tier, IDS).wait().error, NotLoaded)


def test_a_server_that_breaks_request_after_request_is_left_alone_for_a_while(servers, monkeypatch):
    monkeypatch.setattr("engines.remote.endpoint.EJECT_SECONDS", 1.0)
    with tier_of(servers[0]) as tier:
        for _ in range(endpoint.FAILURES):
            assert isinstance(ask(tier, IDS, script=FAILS_FIRST * 1000).wait().error, EngineFailed)
        error = ask(tier, IDS).wait().error
        assert isinstance(error, NotLoaded) and "it failed too often" in str(error)
        assert eventually(lambda: ask(tier, IDS).wait().ids == IDS)


def test_a_name_without_an_address_and_a_port_that_speaks_something_else_are_no_endpoints(servers):
    async def resolve(host, port):
        raise OSError("no such name")

    with tier_of(servers[0], make_pool=lambda *given: Pool(*given, resolve=resolve)) as tier:
        assert "no address of one is known" in str(ask(tier, IDS).wait().error)
    with tier_of(servers[0], endpoints=(Address(HOSTS[0], servers[0].metrics_port),)) as tier:
        assert "it can't be reached" in str(ask(tier, IDS).wait().error)


def test_hundreds_of_requests_at_a_time_all_end_and_leave_nothing(tier, servers):
    clients = [ask(tier, [number + 1, *IDS], tokens=4, script=1) for number in range(500)]
    assert [client.wait().ids for client in clients] == [[number + 1, *IDS] for number in range(500)]
    assert all(client.ends == 1 for client in clients)
    assert eventually(lambda: tier.look(lambda pool: sum(each.in_flight for each in pool.all())) == 0)
    shares = [server.told()["started"] for server in servers]
    assert sum(shares) == 500 and max(shares) <= 1.3 * 250


def test_an_engine_that_breaks_before_its_first_token_is_not_asked_twice(tier, servers):
    assert isinstance(ask(tier, IDS, script=FAILS_FIRST * 1000).wait().error, EngineFailed)
    assert sum(server.told()["started"] for server in servers) == 1


def test_an_engine_that_breaks_later_ends_the_stream_as_engine_error(tier):
    assert isinstance(ask(tier, IDS, script=FAILS_LATER * 1000).wait().error, EngineFailed)
    client = ask(tier, IDS, script=FAILS_LATER * 1000, errors_as_data=True).wait()
    assert (client.error, client.failed_as_data, client.ids) == (None, True, IDS[:2])


def test_a_caller_that_asks_for_ids_alone_gets_nothing_else_and_no_padding(tier, servers):
    servers[0].set(padding=3)
    servers[1].set(padding=3)
    client = ask(tier, IDS, outputs=frozenset({"output_ids"})).wait()
    assert (client.ids, client.names) == (IDS, {"output_ids"})
    client = ask(tier, IDS, script=FAILS_LATER * 1000, errors_as_data=True, outputs=frozenset({"output_ids"})).wait()
    assert (client.ids, client.names, client.failed_as_data) == (IDS[:2], {"output_ids"}, True)


def test_a_stream_that_ends_well_but_without_its_last_response_is_a_lost_one(tier, servers):
    for server in servers:
        server.set(truncated=1)
    assert isinstance(ask(tier, IDS).wait().error, EngineFailed)


@pytest.mark.parametrize("change", [{"ready": 0}, {"draining": 1}])
def test_a_draining_server_gets_nothing_new_and_its_streams_end_by_themselves(tier, servers, change):
    clients = [ask(tier, [number + 1] * 64, tokens=150, script=SLOW) for number in range(6)]
    for client in clients:
        client.wait_for_ids(1)
    before = servers[0].told()["started"]
    assert before
    servers[0].set(**change)
    assert eventually(lambda: why_not(tier)[servers[0].name] != "")
    for number in range(10):
        assert ask(tier, [number + 30] * 64, tokens=1).wait().error is None
    assert servers[0].told()["started"] == before
    for client in clients:
        assert (client.wait().error, len(client.ids)) == (None, 150)


def test_a_server_with_another_model_is_refused_and_told_so(servers, ports):
    servers[0].set(identity='{"name": "a-model", "tokenizer": "22"}')
    servers[1].set(identity="{}")
    with tier_of(*servers) as tier:
        error = ask(tier, IDS).wait().error
        assert isinstance(error, NotLoaded)
        assert "another model than this server's tensorrt_llm_large: its tokenizer is 22, and here it is 1111" in str(
            error
        )
        assert "it doesn't say which model it serves" in str(error)
        assert errors_of(tier, servers[0])["mismatch"] == 1
        servers[0].set(identity=IDENTITY)
        assert eventually(lambda: why_not(tier)[servers[0].name] == "")
        assert ask(tier, IDS).wait().ids == IDS
    with tier_of(servers[1], compare_models=False) as tier:
        assert ask(tier, IDS).wait().ids == IDS


def test_a_model_that_is_changed_in_place_is_noticed(tier, servers, monkeypatch):
    monkeypatch.setattr("engines.remote.endpoint.COMPARE_SECONDS", 0.0)
    servers[0].set(identity='{"name": "other"}')
    assert eventually(lambda: "another model" in why_not(tier)[servers[0].name])


def resolving(known):
    """Makes pools for which every name has the addresses `known`, which a test changes; without one it fails."""

    async def resolve(host, port):
        if not known:
            raise OSError("the resolver is away")
        return list(known)

    return lambda *given: Pool(*given, resolve=resolve)


def test_addresses_that_come_and_go_by_name_are_followed(servers):
    known = [HOSTS[0]]
    first, second = servers
    named = (Address("engines.test", first.grpc_port),)
    with tier_of(first, endpoints=named, resolve_seconds=1, make_pool=resolving(known)) as tier:
        stream = ask(tier, IDS, tokens=200, script=SLOW)
        stream.wait_for_ids(1)
        known[:] = [HOSTS[1]]
        assert eventually(lambda: why_not(tier).get(second.name) == "")
        assert eventually(lambda: why_not(tier)[first.name] == "it is no longer among the addresses")
        assert ask(tier, IDS, tokens=1).wait().error is None
        assert first.told()["started"] == 1
        known.clear()
        assert (stream.wait().error, len(stream.ids)) == (None, 200)
        assert eventually(lambda: list(why_not(tier)) == [second.name])
        assert ask(tier, IDS).wait().ids == IDS


def test_an_address_that_comes_back_while_its_streams_still_run_is_one_endpoint(servers):
    known = [HOSTS[0]]
    first, _ = servers
    named = (Address("engines.test", first.grpc_port),)
    with tier_of(first, endpoints=named, resolve_seconds=1, make_pool=resolving(known)) as tier:
        stream = ask(tier, IDS, tokens=5000, script=SLOW)
        stream.wait_for_ids(1)
        for known[:] in ([HOSTS[1]], [HOSTS[0]]):
            assert eventually(
                lambda: {name for name, why in why_not(tier).items() if not why} == {f"{known[0]}:{first.grpc_port}"}
            )
        assert tier.look(lambda pool: [(each.name, each.in_flight) for each in pool.all()]) == [(first.name, 1)]
        assert ask(tier, IDS).wait().error is None
        assert first.told()["started"] == 2 and not stream.has_ended
        stream.has_left = True
        stream.wait()


def test_the_tiers_figures_are_the_sums_of_its_servers(tier, servers):
    for number, server in enumerate(servers, start=1):
        server.set(waiting=number)
    assert eventually(lambda: tier.look(lambda pool: pool.figures())["request", "waiting"] == 3)
    assert tier.look(lambda pool: pool.figures())["request", "max"] == 64


def test_the_tiers_counts_do_not_fall_when_a_server_dies(tier, servers):
    def is_reused(blocks):
        return eventually(lambda: tier.look(lambda pool: pool.figures()).get(("kv_cache_block", "reused")) == blocks)

    assert is_reused(0)
    for number, server in enumerate(servers, start=1):
        server.set(reused=number)
    assert is_reused(3)
    servers[0].kill()
    assert eventually(lambda: why_not(tier)[servers[0].name] != "")
    servers[1].set(reused=5)
    assert is_reused(6)


def test_a_metrics_page_that_hangs_does_not_keep_a_server_from_being_asked_whether_it_lives(servers, monkeypatch):
    monkeypatch.setattr("engines.remote.figures.READ_SECONDS", 60.0)
    with tier_of(servers[0]) as tier:
        servers[0].set(hangs=1)
        before = servers[0].told()["looks"]
        assert eventually(lambda: servers[0].told()["looks"] >= before + 4)
        assert why_not(tier)[servers[0].name] == ""


def test_without_metrics_pages_the_figures_are_of_this_servers_own_requests(servers):
    with tier_of(*servers, metrics_port=0) as tier:
        client = ask(tier, IDS, script=SILENT * 1000, request_id="a")
        assert eventually(lambda: tier.look(lambda pool: pool.figures())["request", "waiting"] == 1)
        tier.stop("a")
        client.wait()


def test_a_tier_that_is_closed_ends_its_streams(servers):
    with tier_of(*servers) as tier:
        client = ask(tier, IDS, script=SILENT * 1000)
        assert eventually(lambda: sum(server.told()["running"] for server in servers) == 1)
    assert client.wait().error is not None
    assert eventually(lambda: sum(server.told()["running"] for server in servers) == 0)
