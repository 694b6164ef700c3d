"""A server whose ranks mpirun has started: found, watched and ended one by one, since mpirun does it badly.

A SIGTERM to mpirun kills the ranks within two seconds, requests in flight or not, so the first rank is asked itself;
and mpirun lives on where a rank leaves in silence (exit status 0), where requests would then wait for ever.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from scripts.host import children, processes, shared_memory
from scripts.server.tritonserver import SHM_FLAG, SHM_VARIABLE, Settings, Start, TritonServer

LOOK_S = 1.0  # how often ranks beyond the first are looked for
SEEN_S = 120.0  # until each rank must have been: trtllm-llmapi-launch stays whatever becomes of the server
GRACE_S = 3.0  # until mpirun has ended what a dead rank leaves behind
DIED = 1  # the exit status where mpirun has none
CUT_OFF = "Exit timeout expired"  # tritonserver's words
TAIL_BYTES = 100_000


class MpiServer(TritonServer):
    """`pid` is the first rank's, of the server that listens; mpirun's until that is found."""

    def __init__(self, settings: Settings, start: Start) -> None:
        self._tritonserver = str(start.tritonserver)
        self._prefix = start.shm_prefix
        self._ranks: dict[int, int] = {}  # pids
        self._rank_count = 1 + len(start.rank_logs)
        self._look_at = self._gone_at = 0.0
        self._was_killed = False
        self._seen_by = time.monotonic() + SEEN_S
        super().__init__(settings, start)

    @property
    def pid(self) -> int:
        self._look_for_ranks()
        return self._ranks.get(0, self._process.pid)

    def exit_status(self) -> int | None:
        """mpirun's; DIED if it stays although a rank has gone."""
        self._look_for_ranks()
        status = self._process.poll()
        if status is not None or not self._gone_ranks():
            return status
        self._gone_at = self._gone_at or time.monotonic()
        return DIED if time.monotonic() - self._gone_at > GRACE_S else None

    def is_ready(self) -> bool:
        """The same, once every rank is watched."""
        self._look_for_ranks()
        return len(self._ranks) == self._rank_count and super().is_ready()

    def has_ended_well(self) -> bool:
        # mpirun's status tells of all ranks, and how the others leave is no matter.
        return not self._was_killed and 0 in self._gone_ranks() and CUT_OFF not in _tail(self.settings.log)

    def kill(self) -> None:
        self._was_killed = True
        self._process.terminate()  # it ends the ranks and clears up after itself
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        end = time.monotonic() + GRACE_S
        while (left := processes.with_variable(SHM_VARIABLE, self._prefix)) and time.monotonic() < end:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.poll()
            time.sleep(0.05)

    def clean_up(self) -> None:
        self.kill()
        children.kill_group(self._process.pid)
        shared_memory.remove(self._prefix)

    def ending(self) -> str:
        gone = self._gone_ranks()
        if self._process.poll() is None and gone:
            return f"rank {gone[0]} has ended"
        return f"mpirun: {super().ending()}"

    def _gone_ranks(self) -> list[int]:
        unseen = [rank for rank in range(self._rank_count) if rank not in self._ranks]
        missing = unseen if time.monotonic() > self._seen_by else []
        return missing + [rank for rank, pid in self._ranks.items() if not processes.is_alive(pid)]

    def _look_for_ranks(self) -> None:
        if len(self._ranks) == self._rank_count or (0 in self._ranks and time.monotonic() < self._look_at):
            return
        self._look_at = time.monotonic() + LOOK_S
        for pid in processes.with_variable(SHM_VARIABLE, self._prefix):
            rank = self._rank(processes.command(pid))
            if rank is not None:
                self._ranks.setdefault(rank, pid)

    def _rank(self, words: list[str]) -> int | None:
        """The rank of a server by its command line; None for what started it, and for its stubs."""
        if self._tritonserver not in words[:2]:  # the second word where it is a script
            return None
        found = (word.removeprefix(f"{SHM_FLAG}{self._prefix}") for word in words if word.startswith(SHM_FLAG))
        return next((int(rank.rstrip("_") or 0) for rank in found), None)


def _tail(log: Path) -> str:
    try:
        return log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
    except OSError:
        return ""
