"""A server that stands still with all its processes, as a machine that is paused, and goes on."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

from scripts.host import processes
from tests.waiting import eventually

RUNS = 2  # times that a process must have run again: what tells tritonserver that a stub lives wakes up every 300 ms


def freeze(supervisor_pid: int) -> None:
    """scripts/serve first, so that it wakes and repairs nothing."""
    _send(processes.tree(supervisor_pid), signal.SIGSTOP)


def thaw(supervisor_pid: int) -> None:
    """The processes of models first, and the others once these have run: on a full machine one may have to wait for
    seconds until it runs again, and tritonserver takes a process of which it hears nothing for one for dead. (It then
    ends by a segmentation fault, and scripts/serve starts another.) A machine that was paused goes on all at once."""
    all_of_it = processes.tree(supervisor_pid)
    stubs = [pid for pid in all_of_it if processes.stub_model(pid)]
    before = {pid: _ran(pid) for pid in stubs}
    _send(stubs, signal.SIGCONT)
    assert eventually(lambda: all(_ran(pid) >= before[pid] + RUNS for pid in stubs), 60)
    _send([pid for pid in all_of_it if pid not in before], signal.SIGCONT)


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _ran(pid: int) -> float:
    """How often its threads gave up their core; infinite for one that has ended."""
    try:
        texts = [(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return float("inf")
    return sum(
        int(found[1]) for text in texts if (found := re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M))
    )
