"""Keeps caches cold, as an engine does that computes on the same cores: memory that is written from end to end.

`bench response` and `bench request` write it themselves; `sweeping` has a process do it beside what is measured, a
thread on each core that lets everything else go first.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bls.paths import ROOT

SWEPT_BYTES = 64 << 20
LONGEST_SECONDS = 600.0
_LOOK_SECONDS = 0.1
_LET_GO_SECONDS = 10


def swept_memory() -> Any:
    """What to add 1 to, so that all caches are cold."""
    return np.zeros(SWEPT_BYTES, dtype=np.uint8)


@contextmanager
def sweeping(seconds: float = LONGEST_SECONDS) -> Iterator[subprocess.Popen[bytes]]:
    """The process, which sweeps from the first line of the block on until its end, or that of this process; in no case
    for longer than `seconds`."""
    command = [sys.executable, "-m", "scripts.bench.sweeper", str(seconds)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            if not process.stdout.readline():
                raise RuntimeError(f"the process that sweeps the caches ended at once: {process.wait()}")
            yield process
        finally:
            process.stdin.close()
            try:
                process.wait(_LET_GO_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _sweep(memory: Any, core: int, done: threading.Event) -> None:
    os.sched_setaffinity(0, {core})  # this thread's
    while not done.is_set():
        memory += 1  # without Python's lock


def main(seconds: float) -> None:
    """Sweeps until standard input ends."""
    os.nice(19)
    memory, done = swept_memory(), threading.Event()
    threads = [threading.Thread(target=_sweep, args=(memory, core, done)) for core in os.sched_getaffinity(0)]
    for thread in threads:
        thread.start()
    print("sweeping", flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end and not select.select([sys.stdin], [], [], _LOOK_SECONDS)[0]:
        pass
    done.set()


if __name__ == "__main__":
    main(float(sys.argv[1]))
