"""A process that a signal stops is told to go on, and no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from scripts.host import processes
from scripts.server.waker import Waker
from tests.waiting import eventually


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


def test_a_process_that_was_stopped_goes_on(sleeper):
    waker = Waker(sleeper.pid)
    assert not waker.look()
    os.kill(sleeper.pid, signal.SIGSTOP)
    assert eventually(lambda: processes.is_stopped(sleeper.pid))
    assert eventually(waker.look)
    assert eventually(lambda: not processes.is_stopped(sleeper.pid))
    assert not waker.look()


def test_a_process_that_is_gone_is_let_be(sleeper):
    sleeper.kill()
    sleeper.wait()
    assert not Waker(sleeper.pid).look()
