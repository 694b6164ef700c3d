"""What is waited for before a server is told to stop, by servers and a gateway that are only told about."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from scripts.server import drain, idle_connections
from scripts.server.drain import QUIET_LOOKS
from scripts.server.lame_duck import LameDuck, NoFront


class FakeServer:
    """Has so many requests in flight as a test sets."""

    def __init__(self, models=("llm_router",), serves_metrics=True):
        self.settings = SimpleNamespace(models=models, serves_metrics=serves_metrics, has_engines=True, http_port=1)
        self.requests, self.has_died = 0, False
        self.turned_away = self.last_moment = 0
        self.server = SimpleNamespace(pid=1, exit_status=lambda: -9 if self.has_died else None)

    def turn_away(self):
        self.turned_away += 1
        self.requests += self.last_moment

    def metrics(self):
        return f"llm_router_requests_in_flight {self.requests}\n"


class FakeFront:
    def __init__(self):
        self.did, self.has_ended, self.has_cut_off = [], False, False

    def end(self):
        self.did.append("end")

    def drains(self):
        return False


@pytest.fixture(autouse=True)
def no_connections(monkeypatch):
    monkeypatch.setattr(idle_connections, "count_busy", lambda pid, port, quiet_ms: 0)


def looks(duck, times=QUIET_LOOKS + 1):
    return [duck.look() for _ in range(times)][-1]


def test_the_gateway_ends_first_and_then_what_came_past_it():
    server, front = FakeServer(), FakeFront()
    server.requests = 2
    duck = LameDuck([server], front, 0.0, 60.0)
    assert front.did == ["end"]
    assert not looks(duck) and duck.status == "requests in flight: 2"
    front.has_ended = True
    assert not looks(duck)
    server.requests = 0
    assert not looks(duck, QUIET_LOOKS - 1) and looks(duck, 1)
    assert 0 < duck.left_s <= 60.0


def test_a_gateway_that_still_answers_is_waited_for():
    front = FakeFront()
    duck = LameDuck([FakeServer()], front, 0.0, 60.0)
    assert not looks(duck)
    front.has_ended = True
    assert looks(duck, QUIET_LOOKS)


def test_once_the_gateway_has_ended_nobody_new_gets_in_and_who_came_at_the_last_moment_is_waited_for():
    server, front = FakeServer(), FakeFront()
    server.last_moment = 1
    duck = LameDuck([server], front, 0.0, 60.0)
    assert not looks(duck) and not server.turned_away
    front.has_ended = True
    assert not looks(duck, 10) and server.turned_away == 1
    server.requests = 0
    assert looks(duck, QUIET_LOOKS) and server.turned_away == 1


def test_while_balancers_learn_of_it_everybody_still_gets_in():
    server = FakeServer()
    assert not looks(LameDuck([server], NoFront(), 3600.0, 60.0)) and not server.turned_away


def test_nothing_in_flight_is_still_waited_for_until_balancers_know():
    duck = LameDuck([FakeServer()], NoFront(), 3600.0, 60.0)
    assert not looks(duck) and duck.status.startswith("/ready says no")


def test_when_the_time_is_up_the_server_is_told_all_the_same():
    server = FakeServer()
    server.requests = 1
    duck = LameDuck([server], FakeFront(), 0.0, 0.0)
    assert duck.look() and duck.left_s == 0


@pytest.mark.parametrize("server", [FakeServer(models=("other",)), FakeServer(serves_metrics=False)])
def test_a_server_whose_requests_cannot_be_counted_is_told_at_once(server):
    server.requests = 1
    assert LameDuck([server], NoFront(), 0.0, 60.0).look()


def test_a_server_that_dies_meanwhile_is_not_waited_for():
    server = FakeServer()
    server.requests = 1
    duck = LameDuck([server], NoFront(), 0.0, 60.0)
    assert not duck.look()
    server.has_died = True
    assert duck.look()


def test_a_request_that_has_ended_between_two_looks_was_in_flight():
    pages = iter(f"llm_router_requests_in_flight 0\nnv_inference_request_success {count}\n" for count in range(99))
    server = FakeServer()
    server.metrics = lambda: next(pages)
    quiet = drain.Quiet(server)
    assert not any(quiet.look() for _ in range(10))
