"""The thread that hands responses to Triton, for all streams of a tier; the event loop must not wait for a send.

One whose send doesn't return keeps a thread for itself, as with any engine: engines/triton/relay.py.
"""

from __future__ import annotations

import logging
import queue
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from bls import errors
from bls.ports import Sender
from engines.triton.relay import Relay
from engines.triton.stream import failure_as_data
from engines.triton.tensors import Arrays

log = logging.getLogger(__name__)

CANCELLATION_SECONDS = 0.25  # between two looks at whose client has left
_IDLE_SECONDS = 60.0


class Stream:
    """One request's client. `left` is called, from the thread, where it is no longer there."""

    def __init__(
        self,
        outlet: Outlet,
        sender: Sender,
        requested: frozenset[str],
        errors_as_data: bool,
        left: Callable[[], None],
    ) -> None:
        self.backlog: deque[Callable[[], object]] | None = None  # see engines/triton/relay.py
        self.left = left
        self._outlet = outlet
        self._sender = sender
        self._requested = requested
        self._errors_as_data = errors_as_data
        self._has_sent = False

    def send(self, tensors: Arrays) -> None:
        self._has_sent = True
        self._outlet.put(self, partial(self._sender.send, tensors))

    def finish(self, tensors: Arrays) -> None:
        self._outlet.put(self, partial(self._sender.finish, tensors), is_last=True)

    def fail(self, error: errors.RouterError) -> None:
        """After data, a caller that can't receive an error (bls.triton_io.ERRORS_AS_DATA) gets what says so."""
        if self._errors_as_data and self._has_sent:
            self.finish(failure_as_data(self._requested))
        else:
            self._outlet.put(self, partial(self._sender.finish, error=error), is_last=True)

    def has_left(self) -> bool:
        """A client of whom Triton can't tell counts as there: its stream ends by itself."""
        try:
            return self._sender.is_cancelled()
        except Exception:
            log.exception("asking after a client")
            return False


class Outlet:
    """`put` never waits; what is put for one stream leaves in that order."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Stream, Callable[[], object], bool] | None] = queue.SimpleQueue()
        self._open: set[Stream] = set()
        self._next_look = 0.0
        self._relay = Relay(self._turn)
        self._relay.start()

    def open(self, stream: Stream) -> None:
        """Its client is asked after from now on, until its last word."""
        self._open.add(stream)
        if len(self._open) == 1:
            self._queue.put(None)  # The thread sleeps for as long as there is none.

    def put(self, stream: Stream, act: Callable[[], object], is_last: bool = False) -> None:
        self._queue.put((stream, act, is_last))

    def close(self) -> None:
        """What was put before has left."""
        self._relay.close(lambda: self._queue.put(None))

    def _turn(self) -> None:
        self._look_at_clients()
        wait = max(0.0, self._next_look - time.monotonic()) if self._open else _IDLE_SECONDS
        try:
            item = self._queue.get(timeout=wait)
        except queue.Empty:
            return
        if item is None:
            return
        stream, act, is_last = item
        if is_last:
            self._open.discard(stream)
        if not self._relay.send(stream, act) and not is_last:
            self._leave(stream)

    def _look_at_clients(self) -> None:
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + CANCELLATION_SECONDS
        for stream in list(self._open):
            if stream.backlog is None and stream.has_left():
                self._leave(stream)

    def _leave(self, stream: Stream) -> None:
        self._open.discard(stream)
        stream.left()
