"""Several processes of one gateway, which take connections from one socket; this one starts and minds them."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.settings import Settings
from gateway.shared import Shared, Workers

if TYPE_CHECKING:
    from gateway.server import Listeners

    Serve = Callable[[Settings, Listeners, Callable[[str], None], Shared], int]
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
_AGAIN_S = 1.0  # before a worker that died is started again
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded before any fork


class Minder:
    """`serve` is what each worker does until it is told to end; its result is the worker's exit status."""

    def __init__(
        self, settings: Settings, listeners: Listeners, say: Callable[[str], None], shared: Workers, serve: Serve
    ) -> None:
        self._settings = settings
        self._listeners = listeners
        self._say = say
        self._shared = shared
        self._serve = serve
        self._running: dict[int, int] = {}  # worker by pid
        self._due: dict[int, float] = {}  # when to start a worker
        self._is_ending = False
        self._status = 0

    def run(self) -> int:
        """Until all have ended; the worst of their statuses."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self._due = dict.fromkeys(range(self._settings.workers), 0.0)
            while self._running or not self._is_ending:
                self._start_due()
                received = signal.sigtimedwait(_SIGNALS, 0.2)
                if received and received.si_signo != signal.SIGCHLD:
                    self._end()
                self._reap()
            return self._status
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _start_due(self) -> None:
        if self._is_ending:
            return
        for worker, at in list(self._due.items()):
            if time.monotonic() >= at:
                del self._due[worker]
                self._running[self._fork(worker)] = worker

    def _fork(self, worker: int) -> int:
        parent = os.getpid()
        if pid := os.fork():
            return pid
        status = 1
        try:
            # It ends in order with this process, however that ends.
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            if os.getppid() == parent:
                status = self._serve(self._settings, self._listeners, self._say, self._shared.of(worker))
        finally:
            os._exit(status)

    def _end(self) -> None:
        """The second time, the workers end at once: so they take a second signal."""
        self._is_ending = True
        for pid in self._running:
            os.kill(pid, signal.SIGTERM)

    def _reap(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            worker = self._running.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            self._shared.accounts.forget(worker)
            if self._is_ending:
                self._status = max(self._status, code if code >= 0 else 128 - code)
            else:
                self._say(f"worker {worker} ended with status {code}; it is started again")
                self._due[worker] = time.monotonic() + _AGAIN_S
