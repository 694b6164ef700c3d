"""How many processes load at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier, Event

import pytest

from bls import loading_turn
from bls.loading_turn import loading_turn as turn

HOLD = "import sys, time; from pathlib import Path; from bls.loading_turn import loading_turn\n"
HOLD += "with loading_turn(Path(sys.argv[1]), 1):\n    print('has it', flush=True)\n    time.sleep(600)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        (tmp_path / f"{number}.py").touch(mode=0o444)
    return tmp_path


def test_as_many_as_there_are_turns_go_on_at_once_and_the_next_one_when_one_of_them_has_ended(folder):
    entered = Event()

    def third() -> None:
        with turn(folder, 2):
            entered.set()

    with ThreadPoolExecutor(1) as pool, turn(folder, 2):
        with turn(folder, 2):
            waiting = pool.submit(third)
            assert not entered.wait(3 * loading_turn._PAUSE_SECONDS)
        assert entered.wait(60)
        waiting.result()


def test_all_of_the_turns_can_be_held_together(folder):
    together = Barrier(3)

    def one() -> None:
        with turn(folder, 3):
            together.wait(60)

    with ThreadPoolExecutor(3) as pool:
        for each in [pool.submit(one) for _ in range(3)]:
            each.result()


def test_a_process_that_is_killed_gives_its_turn_back(folder):
    with subprocess.Popen([sys.executable, "-c", HOLD, folder], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"has it\n"
        os.kill(other.pid, signal.SIGKILL)
        with turn(folder, 1, longest_seconds=600):
            pass


def test_one_that_is_held_for_ever_holds_nobody_else_for_ever(folder):
    with turn(folder, 1), turn(folder, 1, longest_seconds=0.1):
        pass


def test_where_files_cannot_be_locked_nobody_waits(folder, monkeypatch):
    def refuses(*_: object) -> None:
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(loading_turn.fcntl, "flock", refuses)
    with turn(folder, 1, longest_seconds=600):
        pass


@pytest.mark.parametrize(("text", "turns"), [("50000 100000", 1), ("250000 100000", 2), ("400000 100000", 4)])
def test_the_cores_of_a_container_count(tmp_path, monkeypatch, text, turns):
    (tmp_path / "cpu.max").write_text(text)
    monkeypatch.setattr(loading_turn, "_QUOTA", tmp_path / "cpu.max")
    assert loading_turn._cores() == turns


def test_without_a_limit_the_cores_of_the_machine_count(tmp_path, monkeypatch):
    for text in ("max 100000", ""):
        (tmp_path / "cpu.max").write_text(text)
        monkeypatch.setattr(loading_turn, "_QUOTA", tmp_path / "cpu.max")
        assert loading_turn._cores() == len(os.sched_getaffinity(0))


def test_an_error_while_loading_gives_the_turn_back(folder):
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(ValueError, match="loading"))
        stack.enter_context(turn(folder, 1))
        raise ValueError("loading")
    with turn(folder, 1, longest_seconds=600):
        pass
