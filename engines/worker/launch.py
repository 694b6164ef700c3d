"""Starts and ends the process of engines/worker/worker.py."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from multiprocessing.connection import Connection

from bls.paths import ROOT
from engines.worker import process_tree
from engines.worker.worker import Start

_SECONDS_TO_END = 10


class WorkerProcess:
    """`connection` carries messages both ways; it ends with EOFError when the process has ended, however it did."""

    def __init__(self, start: Start) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
            self._process = subprocess.Popen(
                [sys.executable, "-m", "engines.worker.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        self.connection = Connection(ours.detach())
        with contextlib.suppress(BrokenPipeError):  # It has ended already, as the reader of `connection` will see.
            self.connection.send(start)

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
