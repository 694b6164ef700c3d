"""What the engine's thread does for the clients: hands the worker's news on, asks who left, ends what has to end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from bls.errors import Cancelled, EngineFailed, RouterError
from engines.triton.coalescer import Pace
from engines.triton.relay import Relay
from engines.triton.stream import Stream
from engines.triton.streams import Streams
from engines.worker.scheduler import Event

log = logging.getLogger(__name__)

# A library's own words hold paths and C++ stacks, which are for the log.
FAILED = "the engine failed; the server's log says why"


class Delivery:
    """`lock` guards `streams`; `stop_worker` is called under it for a key that ends before the worker says so.

    The ends that it decides on itself are sent by the relay's next `work`.
    """

    def __init__(
        self,
        streams: Streams,
        lock: threading.Lock,
        pace: Pace,
        seconds_between_checks: float,
        stop_worker: Callable[[int], None],
        relay: Relay,
    ) -> None:
        self._streams = streams
        self._lock = lock
        self._pace = pace
        self._seconds_between_checks = seconds_between_checks
        self._stop_worker = stop_worker
        self._relay = relay
        self._next_cancellation_check = 0.0

    def times(self) -> list[float]:
        """When there is something to do. Under the lock."""
        times = [due for due, _, _ in self._streams.due()]
        if self._streams.all():
            times.append(self._next_cancellation_check)
        end = self._streams.next_end()
        return times if end is None else [*times, end]

    def deliver(self, event: Event) -> None:
        with self._lock:
            stream = self._streams.find(event.key, event.is_last)
        if stream is None or self._relay.send(stream, lambda: _hand_over(event, stream)):
            return
        error = EngineFailed(FAILED)
        if event.is_last:
            self._end(stream, partial(stream.fail, error))
        else:
            self.drop(event.key, error)

    def send_due(self) -> None:
        now = time.monotonic()
        with self._lock:
            waiting = self._streams.due()
        if not any(due <= now for due, _, _ in waiting):
            return
        for due, key, stream in waiting:
            if due <= now + self._pace.slack and not self._relay.send(stream, partial(stream.send, now)):
                self.drop(key, EngineFailed("the response could not be sent"))

    def end_stopped(self) -> None:
        """The worker has been told, and does not answer: what it says later is dropped."""
        now = time.monotonic()
        with self._lock:
            streams = [self._streams.take(key) for key in self._streams.overdue(now)]
        for stream in streams:
            if stream is not None:
                self._end(stream, partial(stream.finish, now))

    def check_cancellations(self) -> None:
        now = time.monotonic()
        if now < self._next_cancellation_check:
            return
        self._next_cancellation_check = now + self._seconds_between_checks
        with self._lock:
            streams = self._streams.all()
        for key, stream in streams:
            if stream.backlog is None and _has_left(stream):
                self.drop(key, Cancelled("the client left"))

    def turn_away(self, error: RouterError) -> None:
        """Ends the streams that have nothing yet of the worker: their callers may ask another engine."""
        with self._lock:
            keys = [key for key, stream in self._streams.sent() if not stream.has_begun]
        for key in keys:
            self.drop(key, error)

    def drop(self, key: int, error: RouterError) -> None:
        with self._lock:
            stream = self._streams.take(key)
            if stream is not None:
                self._stop_worker(key)
        if stream is not None:
            self._end(stream, partial(stream.fail, error))

    def fail_all(self, error: RouterError) -> None:
        with self._lock:
            streams = self._streams.take_all()
        for stream in streams:
            self._end(stream, partial(stream.fail, error))

    def _end(self, stream: Stream, act: Callable[[], None]) -> None:
        self._relay.later(lambda: self._relay.send(stream, act))


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
