"""Which of the router's replaced processes are ended, and which are left to their end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from scripts.server import old_processes
from scripts.server.old_processes import OldProcesses

ROUTER = "llm_router"


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    found = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range(3)]
    yield found
    for process in found:
        process.kill()
        process.wait()


class World:
    """Three processes that were replaced; `idle` of them have nothing to do."""

    def __init__(self, processes: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(old_processes, "time", self)
        self.processes = processes
        self.idle: set[int] = {process.pid for process in processes}
        self.old = OldProcesses(lambda: frozenset(self.idle))

    def monotonic(self) -> float:
        return self.now

    def living(self) -> dict[int, str]:
        return {process.pid: ROUTER for process in self.processes if process.poll() is None}

    def replaced(self) -> None:
        self.old.replaced(set(self.living()))

    def looks(self, seconds: float) -> int:
        """What was ended in that time, by a look a second."""
        ended = 0
        for _ in range(int(seconds)):
            self.now += 1.0
            ended += self.old.look(self.living())
        return ended


@pytest.fixture
def world(sleepers, monkeypatch) -> World:
    return World(sleepers, monkeypatch)


def test_replaced_processes_that_do_nothing_and_that_nobody_ends_are_ended(world):
    world.replaced()
    assert world.looks(old_processes.STILL_S) == 0
    assert world.looks(5) == 3
    assert [process.wait(20) for process in world.processes] == [-9, -9, -9]
    assert world.old.ended == 3 and world.looks(60) == 0


def test_one_that_still_answers_is_left_to_its_end(world):
    busy = world.processes[1]
    world.idle.remove(busy.pid)
    world.replaced()
    assert world.looks(100) == 2
    assert busy.poll() is None
    world.idle.add(busy.pid)
    assert world.looks(30) == 1


def test_one_that_is_busy_at_every_second_look_is_not_idle(world):
    world.replaced()
    pids = set(world.idle)
    for second in range(100):
        world.idle = pids if second % 2 else set()
        assert world.looks(1) == 0


def test_as_long_as_the_server_ends_them_itself_nobody_else_does(world):
    world.replaced()
    for process in world.processes:
        assert world.looks(old_processes.STILL_S - 5) == 0
        process.kill()
        process.wait()
    assert world.looks(100) == 0


def test_processes_that_nothing_has_replaced_are_let_be(world):
    assert world.looks(100) == 0


def test_where_nothing_tells_who_is_idle_none_is_ended(world, monkeypatch):
    def fail() -> frozenset[int]:
        raise OSError

    monkeypatch.setattr(world.old, "_idle", fail)
    world.replaced()
    assert world.looks(100) == 0


def test_the_dead_were_idle_if_the_table_says_so_of_each_and_can_be_read():
    assert OldProcesses(lambda: frozenset({1, 2, 3})).were_idle([1, 3])
    assert not OldProcesses(lambda: frozenset({1, 2})).were_idle([1, 3])

    def unreadable() -> frozenset[int]:
        raise OSError("no such file")

    assert not OldProcesses(unreadable).were_idle([1])
