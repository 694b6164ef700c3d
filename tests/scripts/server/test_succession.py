"""Which server serves next, by servers that are only told about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts.server import room, steering, succession
from scripts.server.succession import Succession
from scripts.server.succession_options import Plan


class FakeGeneration:
    """Does what a test sets; `did` lists what it was asked to do."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.settings = SimpleNamespace(log=Path(f"{number}.log"), models=(), drain_s=30, http_port=1)
        self.canary = SimpleNamespace(hung=frozenset(), is_whole_server_hung=False)
        self.repairs = SimpleNamespace(repaired=Counter(), old=Counter(), left_behind=0, is_repairing=False)
        self.server = self
        self.pid = number
        self.failure, self.failed = "", set[str]()
        self.has_ended = self.is_up = self.has_drained = self.was_aborted = False
        self.did: list[str] = []

    def exit_status(self) -> int | None:
        return 0 if self.has_drained else -9 if self.has_ended else None

    def ending(self) -> str:
        return "killed by SIGKILL"

    def is_ready(self) -> bool:
        return self.is_up

    def is_listening(self) -> bool:
        return self.is_up

    def look(self) -> None: ...
    def care(self) -> None: ...
    def leave(self) -> None: ...
    def close_idle_connections(self, quiet_ms: int | None = None) -> None: ...

    def has_answered_all(self) -> bool:
        return False

    def has_ended_well(self) -> bool:
        return True

    def metrics(self) -> str:
        return ""

    def serve(self) -> None:
        self.did.append("serve")

    def stop(self) -> None:
        self.did.append("stop")

    def kill(self) -> None:
        self.did.append("kill")
        self.has_ended = True

    def clean_up(self) -> None:
        self.did.append("clean up")


@dataclass
class Left:
    """All its clients have moved at once."""

    generation: FakeGeneration

    def look(self) -> bool:
        return True


class World:
    """A succession whose first server serves; `servers` are all that were started."""

    def __init__(self, plan: Plan) -> None:
        self.servers: list[FakeGeneration] = []
        self.said: list[str] = []
        self.told: list[int] = []
        settings = SimpleNamespace(ports=(1,), has_engines=True)
        self.succession = Succession(
            settings, plan, self.start, self.said.append, lambda each: self.told.append(each.number)
        )
        self.succession.serve(self.start())

    def start(self) -> FakeGeneration:
        self.servers.append(FakeGeneration(len(self.servers) + 1))
        return self.servers[-1]

    def mind(self, times: int = 1) -> bool:
        goes_on = [self.succession.mind() for _ in range(times)]
        return all(goes_on)

    @property
    def serving(self) -> int:
        return self.succession.active.number if self.succession.active else 0


@pytest.fixture
def world(monkeypatch) -> Callable[..., World]:
    monkeypatch.setattr(succession, "Leaving", Left)
    monkeypatch.setattr(succession, "STANDBY_PAUSE_S", 0.0)
    monkeypatch.setattr(room, "lacking", lambda pid, settings: "")
    monkeypatch.setattr(steering, "prefer_first", lambda pid, ports: True)
    monkeypatch.setattr(steering, "prefer_second", lambda first, second, ports: True)
    return lambda **choices: World(Plan(**choices))


def test_a_server_that_died_is_followed_by_another(world):
    found = world()
    found.servers[0].has_ended = True
    assert found.mind(2)
    assert (found.serving, len(found.servers)) == (0, 2)
    found.servers[1].is_up = True
    found.mind()
    assert (found.serving, found.told, found.succession.care.restarts) == (2, [1, 2], 1)
    assert "clean up" in found.servers[0].did


def test_without_restarts_a_death_is_the_end(world):
    found = world(restarts=False)
    found.servers[0].has_ended = True
    assert not found.mind()
    assert len(found.servers) == 1


def test_a_start_that_fails_after_a_death_is_tried_again(world):
    found = world()
    found.servers[0].has_ended = True
    found.mind(2)
    found.servers[1].failure = "model m failed to load"
    found.mind()
    assert any(line.startswith("starting it again in") for line in found.said)
    found.succession._start_at = 0.0
    found.mind()
    found.servers[2].is_up = True
    found.mind()
    assert found.serving == 3


def test_a_server_that_answers_nothing_is_killed_and_followed(world):
    found = world()
    found.servers[0].canary.is_whole_server_hung = True
    found.mind(2)
    assert "kill" in found.servers[0].did
    assert len(found.servers) == 2


def test_a_replaced_server_serves_until_the_new_one_is_ready_and_then_drains(world):
    found = world()
    found.succession.replace()
    found.mind(3)
    assert (found.serving, len(found.servers), found.servers[0].did) == (1, 2, ["serve"])
    found.servers[1].is_up = True
    found.mind()
    assert found.serving == 2
    found.mind()
    assert found.servers[0].did == ["serve", "stop"]
    found.servers[0].has_drained = True
    found.mind()
    assert found.servers[0].did[-1] == "clean up"
    assert found.said[-1] == "the old server has ended"
    assert found.succession.care.changeovers == 1


def test_a_new_server_that_does_not_get_ready_changes_nothing(world):
    found = world()
    found.succession.replace()
    found.servers[1].failure = "model m failed to load"
    found.mind(3)
    assert (found.serving, found.servers[0].did) == (1, ["serve"])
    found.succession.replace()
    assert len(found.servers) == 3


def test_a_new_server_that_is_aborted_while_it_loads_is_started_again_but_not_for_ever(world):
    found = world()
    found.succession.replace()
    for number in (2, 3, 4):
        assert len(found.servers) == number
        found.servers[-1].failure, found.servers[-1].was_aborted = "tritonserver ended while loading", True
        found.mind()
    assert (found.serving, len(found.servers)) == (1, 4)
    assert found.said[-1].startswith("the new server did not get ready, so the one at hand serves on")


def test_a_death_during_a_changeover_makes_the_new_server_the_one(world):
    found = world()
    found.succession.replace()
    found.servers[0].has_ended = True
    found.mind()
    found.servers[1].is_up = True
    found.mind()
    assert (found.serving, len(found.servers)) == (2, 2)


def test_a_server_that_answers_in_part_serves_until_the_new_one_is_ready_and_is_not_drained(world):
    found = world()
    found.servers[0].canary.hung = frozenset({"tensorrt_llm_large"})
    found.mind(2)
    assert (found.serving, len(found.servers), found.servers[0].did) == (1, 2, ["serve"])
    found.servers[1].is_up = True
    found.mind(2)
    assert (found.serving, found.servers[0].did) == (2, ["serve", "kill", "clean up"])


def test_without_room_for_two_a_server_that_answers_in_part_is_only_reported(world, monkeypatch):
    monkeypatch.setattr(room, "lacking", lambda pid, settings: "it needs 9 MB of memory, and 1 MB are available")
    found = world()
    found.servers[0].canary.hung = frozenset({"gRPC"})
    found.mind(5)
    assert (found.serving, len(found.servers)) == (1, 1)
    assert [line for line in found.said if "gRPC answers nothing" in line] == [
        "error: gRPC answers nothing; only a new server helps: scripts/serve --replace"
    ]


def test_where_the_old_one_ends_first_the_new_one_waits_for_that(world):
    found = world(beside=False)
    found.succession.replace()
    found.mind(3)
    assert (found.serving, len(found.servers), found.servers[0].did) == (0, 1, ["serve", "stop"])
    found.servers[0].has_drained = True
    found.mind(2)
    assert len(found.servers) == 2
    found.servers[1].is_up = True
    found.mind()
    assert found.serving == 2


def test_too_many_old_processes_are_left_behind_in_a_quiet_moment(world, monkeypatch):
    found = world()
    found.servers[0].repairs.left_behind = succession.OLD_PROCESSES + 1
    monkeypatch.setattr(found.servers[0], "metrics", lambda: "llm_router_requests_in_flight 1\n")
    found.mind(3)
    assert len(found.servers) == 1
    monkeypatch.setattr(found.servers[0], "metrics", lambda: "llm_router_requests_in_flight 0\n")
    found.mind(3)
    assert len(found.servers) == 2


def test_a_standby_waits_and_takes_over_from_a_server_that_died(world):
    found = world(standby=True)
    found.mind()
    found.servers[1].is_up = True
    found.mind(3)
    assert (found.serving, len(found.servers)) == (1, 2)
    assert found.said == ["a second server is ready, to take over where this one dies"]
    found.servers[0].has_ended = True
    found.mind()
    assert found.serving == 2
    found.mind(2)
    assert len(found.servers) == 3


def test_a_replacement_on_request_does_not_take_the_standby_which_may_be_older(world):
    found = world(standby=True)
    found.mind()
    found.servers[1].is_up = True
    found.succession.replace()
    found.mind()
    assert (found.servers[1].did, found.serving, len(found.servers)) == (["clean up"], 1, 3)


def test_a_standby_that_fails_is_tried_again(world):
    found = world(standby=True)
    found.mind()
    found.servers[1].failure = "model m failed to load"
    found.mind(2)
    assert (found.serving, len(found.servers)) == (1, 3)


def test_a_stop_asks_every_server_and_kills_the_one_that_loads(world):
    found = world()
    found.succession.replace()
    drains = found.succession.stop()
    assert [drain.generation.number for drain in drains] == [1]
    assert (found.servers[0].did, found.servers[1].did) == (["serve", "stop"], ["clean up"])
