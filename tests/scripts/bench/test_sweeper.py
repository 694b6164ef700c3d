"""The process that empties the caches works beside a bench, and never after it."""

from __future__ import annotations

import subprocess
import sys

from engines.worker import process_tree
from scripts.bench.sweeper import sweeping
from scripts.host import processes
from tests.waiting import eventually

STARTER = """
import time
from scripts.bench.sweeper import sweeping
with sweeping() as process:
    print(process.pid, flush=True)
    time.sleep(99)
"""


def test_it_computes_beside_the_block_and_ends_with_it():
    with sweeping() as process:
        assert eventually(lambda: (process_tree.cpu_seconds(process.pid) or 0) > 0.5)
    assert process.returncode == 0


def test_it_ends_by_itself_after_its_time():
    with sweeping(seconds=0.1) as process:
        assert process.wait(15) == 0


def test_it_ends_with_who_started_it_however_that_ends():
    with subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        sweeper = int(starter.stdout.readline())
        assert processes.is_alive(sweeper)
        starter.kill()
    assert eventually(lambda: not processes.is_alive(sweeper))
