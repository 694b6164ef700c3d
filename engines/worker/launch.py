"""Starts and ends the processes of engines/worker/worker.py and engines/worker/grammar_process.py."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from typing import Any

from bls.paths import ROOT
from engines.worker import process_tree
from engines.worker.grammar_process import GrammarStart
from engines.worker.worker import Start

_SECONDS_TO_END = 10


def _start(module: str, message: Any) -> tuple[subprocess.Popen[bytes], Connection]:
    ours, theirs = socket.socketpair()
    with theirs:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    connection = Connection(ours.detach())
    with contextlib.suppress(BrokenPipeError):  # It has ended already, as the reader of `connection` will see.
        connection.send(message)
    return process, connection


class WorkerProcess:
    """`connection` carries messages both ways; it ends with EOFError when the process has ended, however it did."""

    def __init__(self, start: Start) -> None:
        self._process, self.connection = _start("engines.worker.worker", start)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> int:
        """Ends the process, by force if it doesn't by itself, and returns its exit code (minus a signal's number)."""
        self.connection.close()
        try:
            return self._process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process_tree.kill_below(self.pid)
            self._process.kill()
            return self._process.wait()


class GrammarProcess:
    """`connection` carries guides and verdicts, the first of which says that it has loaded."""

    def __init__(self, start: GrammarStart) -> None:
        self._process, self.connection = _start("engines.worker.grammar_process", start)

    def end(self) -> int:
        """Ends it by force if it has not ended; the exit code, minus a signal's number."""
        if self._process.poll() is None and self.connection.poll() and self._has_ended():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_SECONDS_TO_END)
        self._process.kill()
        self.connection.close()
        return self._process.wait()

    def interrupt(self) -> None:
        """Kills it; whoever reads from it sees its end."""
        self._process.kill()

    def _has_ended(self) -> bool:
        """It closes its connection a moment before anybody can tell how it ended."""
        try:
            self.connection.recv()
        except (EOFError, OSError):
            return True
        return False
