"""The repair of a model that lost a process, against a server that is only told about."""

from __future__ import annotations

import threading
from itertools import count

import pytest

from bls.contract import ROUTER, SMALL
from scripts.server import restarts
from scripts.server.model_control import ControlFailed
from scripts.server.old_processes import OldProcesses
from scripts.server.restarts import ATTEMPTS, Repairs

NO_ROUTERS = OldProcesses(frozenset)


class FakeServer:
    """Has one `model` of `configured` processes. Loading it anew begins `brings` new ones and ends the others; where
    its instances are `single`, one that died is replaced by itself."""

    model = "m"

    def __init__(self) -> None:
        self._pids = count(1)
        self.loaded: list[str] = []
        self.replaced: list[set[str]] = []
        self.state, self.configured, self.brings = "READY", 2, 2
        self.living = {next(self._pids): self.model for _ in range(2)}
        self.refusal = ""
        self.loads = 0
        self.answers = threading.Event()  # until then a load takes
        self.keeps_old = self.single = False

    def kill_one(self) -> None:
        del self.living[min(self.living)]

    def stubs(self, fresh: bool) -> dict[int, str]:
        return dict(self.living)

    def states(self) -> dict[str, list[str]]:
        return {self.model: [self.state], ROUTER: ["READY"]}

    def instances(self, model: str) -> int:
        return self.configured

    def instance(self, pid: int) -> str:
        return f"instance {pid}"

    def replace(self, model: str, instances: set[str]) -> bool:
        if not self.single:
            return False
        self.answers.wait(20)
        if self.refusal:
            raise ControlFailed(self.refusal)
        self.replaced.append(instances)
        self.living |= {next(self._pids): self.model for _ in instances}
        return True

    def load_anew(self, model: str) -> None:
        self.answers.wait(20)
        self.loads += 1
        self.loaded.append(model)
        if self.refusal:
            raise ControlFailed(self.refusal)
        old = self.living if self.keeps_old else {}
        self.living = {**old, **{next(self._pids): self.model for _ in range(self.brings)}}


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def watch(server, monkeypatch) -> Repairs:
    for name in ("PAUSE_S", "SECOND_LOOK_S", "LOOK_S", "WHOLE_S", "REST_S"):
        monkeypatch.setattr(restarts, name, 0.0)
    return Repairs(server, server.stubs, server.instance, NO_ROUTERS)


def looks(watch: Repairs, count: int) -> list[str]:
    return [line for _ in range(count) for line in watch.look()]


def after_the_repair(server: FakeServer, watch: Repairs) -> list[str]:
    assert watch._repair is not None
    server.answers.set()
    watch._repair.join(20)
    server.answers.clear()
    return [watch._messages.get() for _ in range(watch._messages.qsize())]


STARTED = ["model m: a process died; it is replaced while the others serve"]


def test_a_model_that_lost_a_process_is_loaded_anew(server, watch):
    server.kill_one()
    assert watch.look() == []
    assert watch.has_lost
    assert watch.look() == STARTED
    assert watch.is_repairing
    assert after_the_repair(server, watch) == ["model m is whole again after 0 s"]
    assert (server.loads, watch.repaired["m"]) == (1, 1)
    assert looks(watch, 5) == []


def test_a_model_that_dies_twice_is_repaired_twice(server, watch):
    for loads in (1, 2):
        server.kill_one()
        assert looks(watch, 2) == STARTED
        after_the_repair(server, watch)
        assert server.loads == loads


def test_where_instances_are_single_the_one_that_died_is_replaced_and_nothing_is_loaded(server, watch):
    server.single = True
    for died in (1, 2, 3):
        survivor = max(server.living)
        server.kill_one()
        assert looks(watch, 2) == STARTED
        assert after_the_repair(server, watch) == ["model m is whole again after 0 s"]
        assert server.replaced.pop() == {f"instance {died}"}
        assert survivor in server.living
        assert looks(watch, 5) == []
        assert watch.old["m"] == 0
    assert (server.loads, watch.repaired["m"]) == (0, 3)


def test_where_a_single_one_cannot_be_replaced_the_model_is_loaded_anew(server, watch, monkeypatch):
    server.single = True

    def refused(model: str, instances: set[str]) -> bool:
        raise ControlFailed("no answer within 120 s")

    monkeypatch.setattr(server, "replace", refused)
    server.kill_one()
    said = looks(watch, 2) + after_the_repair(server, watch)
    failed = f"model m could not be loaded anew, attempt 1 of {ATTEMPTS}: no answer within 120 s"
    assert said == [*STARTED, failed, "model m is whole again after 0 s"]
    assert server.loads == 1


@pytest.mark.parametrize("was_idle", [True, False])
def test_a_router_process_that_died_over_a_request_is_not_replaced_alone(was_idle, monkeypatch):
    class Routers(FakeServer):
        model = ROUTER

        def states(self) -> dict[str, list[str]]:
            return {ROUTER: ["READY"]}

    for name in ("PAUSE_S", "SECOND_LOOK_S", "LOOK_S", "WHOLE_S", "REST_S"):
        monkeypatch.setattr(restarts, name, 0.0)
    server = Routers()
    server.single = True
    idle = frozenset({1}) if was_idle else frozenset()
    watch = Repairs(server, server.stubs, server.instance, OldProcesses(lambda: idle))
    server.kill_one()
    looks(watch, 2)
    after_the_repair(server, watch)
    assert (server.replaced, server.loaded) == (([{"instance 1"}], []) if was_idle else ([], [ROUTER]))


def test_a_death_among_the_new_is_seen_beside_old_processes_that_live_on(server, watch):
    server.keeps_old = True
    server.kill_one()
    looks(watch, 2)
    after_the_repair(server, watch)
    del server.living[max(server.living)]
    assert looks(watch, 2) == STARTED
    after_the_repair(server, watch)


def test_old_processes_are_counted_once_they_should_be_gone(server, watch, monkeypatch):
    server.keeps_old = True
    server.kill_one()
    looks(watch, 2)
    after_the_repair(server, watch)
    watch.look()
    assert watch.old["m"] == 0
    monkeypatch.setattr(restarts, "ENDING_S", -1.0)
    watch.look()
    assert watch.old["m"] == 1


@pytest.mark.parametrize("state", ["UNLOADING", "UNAVAILABLE", "LOADING"])
def test_a_model_that_an_operator_unloads_or_loads_is_left_alone(server, watch, state):
    processes, server.state, server.living = server.living, state, {}
    looks(watch, 3)
    server.state, server.living = "READY", {pid + 10: model for pid, model in processes.items()}
    looks(watch, 3)
    assert server.loads == 0


def test_one_look_is_not_enough(server, watch):
    server.kill_one()
    watch.look()
    server.living = {8: "m", 9: "m"}
    assert looks(watch, 3) == []
    assert server.loads == 0


def test_a_model_loaded_with_fewer_instances_lacks_nothing(server, watch):
    server.configured = server.brings = 1
    server.kill_one()
    assert looks(watch, 4) == []
    server.kill_one()
    assert looks(watch, 2) == STARTED
    after_the_repair(server, watch)
    assert server.loads == 1


def test_a_server_that_does_not_answer_is_not_touched(server, watch, monkeypatch):
    def no_answer() -> dict[str, list[str]]:
        raise ControlFailed("no answer within 2 s")

    monkeypatch.setattr(server, "states", no_answer)
    server.kill_one()
    assert looks(watch, 4) == []


@pytest.mark.parametrize(
    ("refusal", "brings", "why"), [("no memory", 2, "no memory"), ("", 1, "it lacks a process again")]
)
def test_a_model_that_cannot_be_loaded_anew_serves_on_and_is_tried_again_later(server, watch, refusal, brings, why):
    server.refusal, server.brings = refusal, brings
    server.kill_one()
    looks(watch, 2)
    said = after_the_repair(server, watch)
    assert said[:-1] == [f"model m could not be loaded anew, attempt {n} of {ATTEMPTS}: {why}" for n in (1, 2, 3)]
    assert said[-1].startswith("model m serves on without it")
    server.refusal, server.brings = "", 2
    assert looks(watch, 2) == STARTED
    assert after_the_repair(server, watch) == ["model m is whole again after 0 s"]


def test_nothing_is_loaded_once_the_server_is_to_stop(server, watch):
    server.refusal = "the server is stopping"
    server.kill_one()
    looks(watch, 2)
    watch.stop()
    assert after_the_repair(server, watch) == []
    assert server.loads == 1


def test_the_router_is_loaded_anew_after_an_engine_whose_process_died(monkeypatch):
    class Engine(FakeServer):
        model = SMALL

    for name in ("PAUSE_S", "SECOND_LOOK_S", "LOOK_S", "WHOLE_S", "REST_S"):
        monkeypatch.setattr(restarts, name, 0.0)
    server = Engine()
    watch = Repairs(server, server.stubs, server.instance, NO_ROUTERS)
    server.kill_one()
    looks(watch, 2)
    said = after_the_repair(server, watch)
    assert server.loaded == [SMALL, ROUTER]
    assert said[-1] == f"model {ROUTER} is loaded anew: processes of it were waiting for the one that died"
