"""When a server whose place another has taken may be told to stop."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from scripts.server import leaving
from scripts.server.leaving import Leaving


class World:
    """A server whose connections get 30 s old, with a drain of 10 s."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.is_quiet = self.can_be_seen = True
        self.has_ended = False
        self.did: list[str] = []
        self.settings = SimpleNamespace(connection_age_s=30.0, drain_s=10)
        monkeypatch.setattr(leaving, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(leaving, "Quiet", lambda generation: self)

    def look(self) -> bool:
        self.did.append("look")
        return self.is_quiet

    def leave(self) -> None:
        self.did.append("leave")

    def close_idle_connections(self) -> None:
        self.did.append("close")

    def ends_after(self) -> float:
        left = Leaving(self)  # type: ignore[arg-type]
        began = self.now
        while not left.look():
            self.now += 0.5
            assert self.now - began < 1000
        return self.now - began


@pytest.fixture
def world(monkeypatch) -> World:
    return World(monkeypatch)


def test_it_serves_on_until_the_oldest_connection_has_moved(world):
    assert 33.0 < world.ends_after() < 36.0
    assert world.did[0] == "leave" and "close" in world.did


def test_what_it_still_answers_gets_the_time_of_a_drain(world):
    world.is_quiet = False
    assert 43.0 < world.ends_after() < 46.0


def test_where_nobody_can_tell_what_it_answers_the_server_itself_is_to_end_it(world):
    world.can_be_seen = world.is_quiet = False
    assert 33.0 < world.ends_after() < 36.0


def test_one_that_has_ended_is_not_waited_for(world):
    world.has_ended = True
    assert world.ends_after() == 0.0
