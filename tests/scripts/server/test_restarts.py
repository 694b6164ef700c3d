"""The repair of a model that lost a process, against a server that is only told about."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from scripts.server import restarts
from scripts.server.model_control import ControlFailed
from scripts.server.restarts import ATTEMPTS, Repairs


class FakeServer:
    """Has one model, "m", and a list of what it was asked to do. Loading brings `after_load` processes."""

    def __init__(self) -> None:
        self.state, self.configured, self.processes, self.after_load = "READY", 2, 2, 2
        self.asked: list[str] = []
        self.refusal, self.after_unload = "", "UNAVAILABLE"
        self.answers = threading.Event()  # to an unload; until then the repair waits

    def count(self, fresh: bool) -> Counter[str]:
        return Counter({"m": self.processes})

    def states(self) -> dict[str, list[str]]:
        return {"m": [self.state]}

    def instances(self, model: str) -> int:
        return self.configured

    def unload(self, model: str, timeout_s: float) -> None:
        self.answers.wait(20)
        self.asked.append("unload")
        self.state, self.processes = self.after_unload, 0

    def load(self, model: str) -> None:
        assert self.state == "UNAVAILABLE", "the unload would undo it"
        self.asked.append("load")
        if self.refusal:
            raise ControlFailed(self.refusal)
        self.state, self.processes = "READY", self.after_load


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def watch(server, monkeypatch) -> Repairs:
    monkeypatch.setattr(restarts, "PAUSE_S", 0.05)
    return Repairs(server, server.count, unload_s=0.2)


def looks(watch: Repairs, count: int) -> list[str]:
    return [line for _ in range(count) for line in watch.look()]


def after_the_repair(server: FakeServer, watch: Repairs) -> list[str]:
    assert watch._repair is not None
    server.answers.set()
    watch._repair.join(20)
    server.answers.clear()
    return watch.look()


def test_a_model_that_lost_a_process_is_unloaded_and_loaded(server, watch):
    server.processes = 1
    assert watch.look() == []
    assert watch.look() == ["model m: a process died; loading it again, unloading it takes about 2 s"]
    assert after_the_repair(server, watch) == ["model m is back"]
    assert server.asked == ["unload", "load"]
    time.sleep(0.06)
    assert looks(watch, 5) == []


def test_a_model_that_dies_twice_is_repaired_twice_but_not_sooner_than_the_pause(server, watch):
    server.processes = 1
    looks(watch, 2)
    after_the_repair(server, watch)
    server.processes = 0
    assert looks(watch, 3) == []
    time.sleep(0.06)
    assert len(looks(watch, 2)) == 1
    assert after_the_repair(server, watch) == ["model m is back"]
    assert watch.gave_up == ""


@pytest.mark.parametrize("state", ["UNLOADING", "UNAVAILABLE", "LOADING"])
def test_a_model_that_an_operator_unloads_or_loads_is_left_alone(server, watch, state):
    server.state, server.processes = state, 0
    looks(watch, 3)
    server.state, server.processes = "READY", 2
    looks(watch, 3)
    assert server.asked == []


def test_one_look_is_not_enough(server, watch):
    for processes in (1, 2, 1, 2):
        server.processes = processes
        watch.look()
    assert server.asked == []


def test_a_model_loaded_with_fewer_instances_lacks_nothing(server, watch):
    server.configured = server.processes = 1
    assert looks(watch, 4) == []
    server.processes = 0
    assert len(looks(watch, 2)) == 1
    after_the_repair(server, watch)
    assert server.asked == ["unload", "load"]


def test_a_server_that_does_not_answer_is_not_touched(server, watch, monkeypatch):
    def no_answer() -> dict[str, list[str]]:
        raise ControlFailed("no answer within 2 s")

    monkeypatch.setattr(server, "states", no_answer)
    server.processes = 1
    assert looks(watch, 4) == []


@pytest.mark.parametrize(
    ("refusal", "after_load", "why"), [("no memory", 2, "no memory"), ("", 1, "it lacks a process again")]
)
def test_a_model_that_does_not_come_back_is_given_up_after_the_last_attempt(server, watch, refusal, after_load, why):
    server.processes, server.refusal, server.after_load = 1, refusal, after_load
    looks(watch, 2)
    said = after_the_repair(server, watch)
    assert said == [f"model m is not back, attempt {n} of {ATTEMPTS}: {why}" for n in range(1, ATTEMPTS + 1)]
    assert watch.gave_up == "m"


def test_a_model_that_cannot_be_unloaded_is_given_up_at_once(server, watch, monkeypatch):
    monkeypatch.setattr(restarts, "UNLOAD_PROCESS_S", 0.05)
    server.after_unload = "UNLOADING"
    server.processes = 1
    looks(watch, 2)
    assert after_the_repair(server, watch) == ["model m cannot be unloaded within 0 s"]
    assert (server.asked, watch.gave_up) == (["unload"], "m")


def test_nothing_is_loaded_once_the_server_is_to_stop(server, watch):
    server.after_unload = "UNLOADING"
    server.processes = 1
    looks(watch, 2)
    watch.stop()
    assert after_the_repair(server, watch) == []
    assert server.asked == ["unload"]
    assert watch.gave_up == ""
