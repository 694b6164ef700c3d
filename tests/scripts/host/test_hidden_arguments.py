"""What other users may read of a command line, on processes of this test's own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from scripts.host import hidden_arguments, processes
from tests.waiting import eventually

SECRET = "5ec7e7" * 8
# Says what it was told once it has been asked, on a line of its own.
REPEATS = "import sys; print('begun', flush=True); sys.stdin.readline(); print(sys.argv[1], flush=True)"
THREADED = f"import threading; threading.Thread(target=threading.Event().wait, daemon=True).start(); {REPEATS}"


@pytest.fixture
def run() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    with ExitStack() as stack:

        def start(code: str, *words: str, program: str = sys.executable) -> subprocess.Popen[str]:
            command = [program, "-c", code, *words]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(child.communicate, "\n")
            stack.callback(child.kill)
            assert child.stdout and child.stdout.readline() == "begun\n"
            return child

        yield start


def shown(child: subprocess.Popen[str]) -> str:
    return " ".join(processes.command(child.pid))


def failures_of_hiding(child: subprocess.Popen[str], program: str) -> list[str]:
    failures: list[str] = []
    hidden_arguments.hide_later(child, program, SECRET, failures.append).join(30)
    return failures


def test_a_program_keeps_the_secret_that_its_command_line_no_longer_shows(run):
    child = run(REPEATS, f"--key={SECRET}", f"--again={SECRET}")
    assert hidden_arguments.overwrite(child.pid, SECRET, "x" * len(SECRET)) == ""
    assert SECRET not in shown(child)
    assert shown(child).count("x" * len(SECRET)) == 2
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == f"--key={SECRET}\n"


def test_what_stands_there_instead_is_no_word_that_somebody_could_guess(run):
    children = [run(THREADED, f"--key={SECRET}") for _ in range(2)]
    assert [failures_of_hiding(child, Path(sys.executable).name) for child in children] == [[], []]
    lines = {shown(child) for child in children}
    assert len(lines) == 2 and not any(SECRET in line for line in lines)


def test_a_program_that_has_not_begun_to_work_is_left_alone(run):
    child = run(REPEATS, f"--key={SECRET}")
    thread = hidden_arguments.hide_later(child, Path(sys.executable).name, SECRET, print)
    thread.join(0.1)
    assert thread.is_alive() and SECRET in shown(child)
    child.kill()
    thread.join(30)
    assert not thread.is_alive()


def test_the_launcher_and_the_program_below_it_are_both_hidden(run, tmp_path):
    program = tmp_path / "server"
    shutil.copy(Path(sys.executable).resolve(), program)
    launcher = f"import subprocess, sys; subprocess.run([{str(program)!r}, '-c', {THREADED!r}, *sys.argv[1:]])"
    child = run(launcher, f"--key={SECRET}")
    assert failures_of_hiding(child, "server") == []
    tree = list(processes.tree(child.pid))
    assert len(tree) == 2
    assert not any(SECRET in " ".join(processes.command(pid)) for pid in tree)
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == f"--key={SECRET}\n"


def test_a_process_that_has_gone_needs_nothing_hidden(run):
    child = run(REPEATS, SECRET)
    child.kill()
    child.wait()
    assert hidden_arguments.overwrite(child.pid, SECRET, "x" * len(SECRET)) == ""
    assert eventually(lambda: processes.command(child.pid) == [""])
