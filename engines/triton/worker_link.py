"""One worker as the engine's threads see it: commands go in, news come out, and whether it is still alive."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, Protocol

from bls.errors import EngineFailed
from engines.triton.outbox import Outbox
from engines.triton.silence import Patience, Silence
from engines.worker.scheduler import Statistics
from engines.worker.worker import Failed, Ready

log = logging.getLogger(__name__)

# A worker is started again as it was the first time, when nobody else may have kept the machine busy.
_LOAD_SECONDS, _LOADS = 60.0, 5.0


class Worker(Protocol):
    """A running worker: a process of its own or one that is shared, or a thread in tests.

    `close` returns the exit code, or None where it can't be known.
    """

    connection: Connection

    def close(self) -> int | None: ...


class Processes(Protocol):
    """`engines.worker.process_tree`."""

    def cpu_seconds(self, pid: int) -> float | None: ...

    def kill(self, pid: int) -> None: ...


class Lost(Exception):
    """The worker is of no use any more; the message says why, if anybody knows."""


class WorkerLink:
    """`first_load_seconds` is how long the first one took to load, by which the patience with this one is measured."""

    def __init__(self, launch: Callable[[], Worker], processes: Processes, patience: Patience) -> None:
        self._started = time.monotonic()
        self._worker = launch()
        self._processes = processes
        self._patience = patience
        self._outbox = Outbox(self._worker.connection)
        self._pid = 0
        self.is_ready = False
        self.silence = Silence(Patience(frozen=0, step=0), lambda: None, self._started)

    @property
    def connection(self) -> Connection:
        return self._worker.connection

    def await_ready(self) -> tuple[Statistics, float]:
        """Its figures and the seconds that it took. Raises EngineFailed."""
        try:
            message = self._worker.connection.recv()
        except EOFError:
            raise EngineFailed(f"the engine's process ended while loading ({self.close()})") from None
        if isinstance(message, Failed):
            self.close()
            raise EngineFailed(message.reason)
        self._take_ready(message)
        statistics: Statistics = message.statistics
        return statistics, time.monotonic() - self._started

    def expect_ready(self, first_load_seconds: float) -> None:
        """It has to be ready in a multiple of the time that the first one took."""
        most = _LOAD_SECONDS + _LOADS * first_load_seconds if self._patience.step else 0.0
        self.silence = Silence(Patience(frozen=0, step=most), lambda: None, time.monotonic())

    def send(self, command: Any) -> None:
        self._outbox.put(command)

    def news(self) -> Iterator[Any]:
        """What has come by now. Raises Lost."""
        while True:
            try:
                if not self._worker.connection.poll():
                    return
                message = self._worker.connection.recv()
            except (EOFError, OSError):
                raise Lost from None
            except Exception as error:  # News that can't be read are lost, perhaps the last of a stream.
                log.exception("reading the worker's news")
                raise Lost(type(error).__name__) from None
            self._note(message)
            yield message

    def kill(self) -> None:
        """By force, with what it has started, since it doesn't answer."""
        if self._pid:
            self._processes.kill(self._pid)

    def close(self) -> str:
        """Ends it; how it ended, for the log."""
        if not self._outbox.close():
            self.kill()
        exit_code = self._worker.close()
        if exit_code is None:
            return "exit code unknown"
        return f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"

    def end(self) -> None:
        """The same of one that is lost."""
        log.error("the engine's process ended (%s)", self.close())

    def _note(self, message: Any) -> None:
        self.silence.broken(time.monotonic())
        if isinstance(message, Failed):
            raise Lost(message.reason)
        if isinstance(message, Ready):
            self._take_ready(message)

    def _take_ready(self, message: Ready) -> None:
        self._pid = message.pid
        self.is_ready = True
        self.silence = Silence(self._patience, self._cpu_seconds, time.monotonic())

    def _cpu_seconds(self) -> float | None:
        return self._processes.cpu_seconds(self._pid) if self._pid else None
