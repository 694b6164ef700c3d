"""The engine as Triton's stub sees it: requests go to a worker process, its news go out to the clients.

Triton's thread submits; one thread of ours reads the worker's news, sends the responses, asks after clients that left
and starts another worker when one is lost.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from bls.errors import BadRequest, Busy, Cancelled, EngineFailed, EngineUnavailable, RouterError
from bls.ports import Sender
from engines.triton.coalescer import Pace
from engines.triton.stream import Stream
from engines.triton.tensors import EngineRequest
from engines.worker.scheduler import Event, Statistics
from engines.worker.worker import Add, Batch, Failed, Ready, Step, Stop

log = logging.getLogger(__name__)

_FIRST_RESTART_SECONDS = 0.1
_LONGEST_RESTART_SECONDS = 30.0
_SECONDS_AFTER_A_FAULT = 0.1  # Before the thread goes on after a bug of ours: it must not fill the log.

# A library's own words hold paths and C++ stacks, which are for the log.
_FAILED = "the engine failed; the server's log says why"


class Worker(Protocol):
    """A running worker: a process of its own or one that is shared, or a thread in tests.

    `close` returns the exit code, or None where it can't be known.
    """

    connection: Connection

    def close(self) -> int | None: ...


@dataclass(frozen=True)
class Periods:
    """Seconds between two looks: at clients that may have left, and at the figures for the metrics."""

    cancellation: float = 0.1
    statistics: float = 0.1


@dataclass(frozen=True)
class Submission:
    """One request for the worker: `requested` are the outputs that its client wants, `sender` the way back."""

    request_id: str
    request: EngineRequest
    requested: frozenset[str]
    sender: Sender


class Engine:
    """`launch` starts a worker. `publish` gets its statistics every so often while busy, and once when idle.

    Above `max_waiting` requests that don't compute yet the next one is refused; 0 means no limit, as in TensorRT-LLM.
    """

    def __init__(
        self,
        launch: Callable[[], Worker],
        pace: Pace,
        periods: Periods = Periods(),
        publish: Callable[[Statistics], None] = lambda statistics: None,
        max_waiting: int = 0,
    ) -> None:
        self._launch = launch
        self._pace = pace
        self._periods = periods
        self._publish = publish
        self._max_waiting = max_waiting
        self._lock = threading.Lock()  # Guards what follows, and the sending of commands.
        self._streams: dict[int, Stream] = {}
        self._keys = itertools.count()
        self._is_ready = False
        self._closing = False
        self._restart_seconds = _FIRST_RESTART_SECONDS
        self._restart_at: float | None = None
        self._next_cancellation_check = 0.0
        self._next_publication = 0.0
        self._wake_reader, self._wake_writer = os.pipe()
        self._worker = launch()
        self.statistics = self._await_ready()
        self._thread = threading.Thread(target=self._run, name="delivery", daemon=True)
        self._thread.start()

    def submit(self, request_id: str, request: EngineRequest, requested: frozenset[str], sender: Sender) -> None:
        """Hands a request to the worker. Raises EngineUnavailable, Busy, or BadRequest if its id is running already."""
        self.submit_all([Submission(request_id, request, requested, sender)])

    def submit_all(self, submissions: Sequence[Submission]) -> None:
        """The same for requests that are to begin together. Where it raises, it has taken none of them."""
        adds = []
        with self._lock:
            self._check_room(submissions)
            if not self._streams:
                self._wake()
            for each in submissions:
                key = next(self._keys)
                self._streams[key] = Stream(each.request_id, each.request, each.requested, each.sender, self._pace)
                adds.append(Add(key, each.request.generation))
            self._command(Batch(tuple(adds)))

    def stop(self, request_id: str) -> None:
        """Ends the running request of that id with what it has; one that is unknown or has ended is fine."""
        with self._lock:
            for key, stream in self._streams.items():
                if stream.request_id == request_id:
                    self._command(Stop(key))

    def close(self) -> None:
        """Ends all streams, the worker and the thread."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._wake()
        self._thread.join()
        self._fail_all(EngineUnavailable("the model is being unloaded"))
        self._worker.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _check_room(self, submissions: Sequence[Submission]) -> None:
        if not self._is_ready:
            raise EngineUnavailable("the engine is being started again")
        running = {stream.request_id for stream in self._streams.values()}
        for each in submissions:
            if each.request_id and each.request_id in running:
                raise BadRequest(f"a request with the id {each.request_id!r} is running already")
        most = self.statistics.most + self._max_waiting
        if self._max_waiting and len(self._streams) + len(submissions) > most:
            raise Busy(f"the engine's queue is full: {self._max_waiting} requests are waiting")

    def _await_ready(self) -> Statistics:
        try:
            message = self._worker.connection.recv()
        except EOFError:
            raise EngineFailed(f"the engine's process ended while loading ({_ending(self._worker.close())})") from None
        if isinstance(message, Failed):
            self._worker.close()
            raise EngineFailed(message.reason)
        self._is_ready = True
        statistics: Statistics = message.statistics
        return statistics

    def _wake(self) -> None:
        """The thread sleeps for as long as it has no stream to look after."""
        os.write(self._wake_writer, b".")

    def _command(self, command: Any) -> None:
        # If the worker is gone, our thread reads the end of its news and fails every stream.
        with contextlib.suppress(OSError):
            self._worker.connection.send(command)

    def _run(self) -> None:
        _try("publishing", lambda: self._publish(self.statistics))
        while not self._closing:
            if not _try("delivery", self._turn):
                time.sleep(_SECONDS_AFTER_A_FAULT)

    def _turn(self) -> None:
        readable = wait(self._sources(), self._timeout(time.monotonic()))
        if self._wake_reader in readable:
            os.read(self._wake_reader, 4096)
        if self._worker.connection in readable:
            self._read_news()
        self._send_due()
        self._check_cancellations()
        self._restart_if_due()

    def _sources(self) -> list[Any]:
        return [self._wake_reader] if self._restart_at is not None else [self._worker.connection, self._wake_reader]

    def _timeout(self, now: float) -> float | None:
        with self._lock:
            times = [due for stream in self._streams.values() if (due := stream.due()) is not None]
            if self._streams:
                times.append(self._next_cancellation_check)
        if self._restart_at is not None:
            times.append(self._restart_at)
        return max(0.0, min(times) - now) if times else None

    def _read_news(self) -> None:
        while self._restart_at is None:
            try:
                if not self._worker.connection.poll():
                    return
                message = self._worker.connection.recv()
            except (EOFError, OSError):
                self._lose_worker("")
            except Exception as error:  # News that can't be read are lost, perhaps the last of a stream.
                log.exception("reading the worker's news")
                self._lose_worker(type(error).__name__)
            else:
                self._take(message)

    def _take(self, message: Any) -> None:
        if isinstance(message, Failed):
            self._lose_worker(message.reason)
        elif isinstance(message, Ready):
            log.info("the engine is back")
            with self._lock:
                self._is_ready = True
        elif isinstance(message, Step):
            self._restart_seconds = _FIRST_RESTART_SECONDS
            for event in message.events:
                self._deliver(event)
            self._publish_if_due(message.statistics)

    def _deliver(self, event: Event) -> None:
        with self._lock:
            stream = self._streams.get(event.key)
            if stream is not None and event.is_last:
                del self._streams[event.key]
        if stream is None or _try("delivering", lambda: _hand_over(event, stream)):
            return
        error = EngineFailed(_FAILED)
        if event.is_last:
            _try("sending", lambda: stream.fail(error))
        else:
            self._drop(event.key, error)

    def _send_due(self) -> None:
        now = time.monotonic()
        with self._lock:
            waiting = [(due, key, stream) for key, stream in self._streams.items() if (due := stream.due()) is not None]
        if not any(due <= now for due, _, _ in waiting):
            return
        for due, key, stream in waiting:
            if due <= now + self._pace.slack and not _try("sending", lambda stream=stream: stream.send(now)):  # type: ignore[misc]
                self._drop(key, EngineFailed("the response could not be sent"))

    def _check_cancellations(self) -> None:
        now = time.monotonic()
        if now < self._next_cancellation_check:
            return
        self._next_cancellation_check = now + self._periods.cancellation
        with self._lock:
            streams = list(self._streams.items())
        for key, stream in streams:
            if _has_left(stream):
                self._drop(key, Cancelled("the client left"))

    def _drop(self, key: int, error: RouterError) -> None:
        with self._lock:
            stream = self._streams.pop(key, None)
            if stream is not None:
                self._command(Stop(key))
        if stream is not None:
            _try("sending", lambda: stream.fail(error))

    def _publish_if_due(self, statistics: Statistics) -> None:
        now = time.monotonic()
        if statistics.active == 0 or now >= self._next_publication:
            self._next_publication = now + self._periods.statistics
            _try("publishing", lambda: self._publish(statistics))

    def _lose_worker(self, reason: str) -> None:
        with self._lock:
            self._is_ready = False
        self._plan_restart()
        log.error("the engine is lost: %s", reason or "its process has ended")
        self._fail_all(EngineFailed(_FAILED))  # Before the process ends: one that is stuck takes seconds.
        try:
            log.error("the engine's process ended (%s)", _ending(self._worker.close()))
        except Exception:  # Another one is started all the same.
            log.exception("ending the engine's process")

    def _plan_restart(self) -> None:
        self._restart_at = time.monotonic() + self._restart_seconds
        self._restart_seconds = min(2 * self._restart_seconds, _LONGEST_RESTART_SECONDS)

    def _restart_if_due(self) -> None:
        if self._restart_at is None or time.monotonic() < self._restart_at:
            return
        try:
            self._worker = self._launch()
            self._restart_at = None
        except Exception:  # No memory or no processes left, or anything else: later, perhaps.
            log.exception("starting the engine's process")
            self._plan_restart()

    def _fail_all(self, error: RouterError) -> None:
        with self._lock:
            streams, self._streams = list(self._streams.values()), {}
        for stream in streams:
            _try("sending", lambda stream=stream: stream.fail(error))  # type: ignore[misc]


def _try(what: str, act: Callable[[], None]) -> bool:
    """Whether it went well. What Triton raises for one client must not end the thread that serves all."""
    try:
        act()
    except Exception:
        log.exception(what)
        return False
    return True


def _hand_over(event: Event, stream: Stream) -> None:
    stream.add(event.ids, event.log_probs)
    if event.error is not None:
        stream.fail(event.error)
    elif event.is_last:
        stream.finish(time.monotonic())


def _has_left(stream: Stream) -> bool:
    """A client of whom Triton can't tell counts as there: its stream ends by itself."""
    try:
        return stream.is_cancelled()
    except Exception:
        log.exception("asking after a client")
        return False


def _ending(exit_code: int | None) -> str:
    if exit_code is None:
        return "exit code unknown"
    return f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
