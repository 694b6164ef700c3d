"""The thread that answers an engine's clients, and the one that takes its place when a send doesn't return.

Triton's send to a router process that has died never returns (python_backend 24.10), and a thread that waits for it
would keep all other streams of the engine waiting, and every later request. So a send that takes long keeps its stream
and its thread for itself, and another thread goes on with the rest. Where it does return, on a machine that was only
busy, the thread does what has gathered for its stream, gives it back and is done.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from engines.triton.attempt import attempt

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 1.0  # The other streams pause for as long, and for half as much again.
_SECONDS_AFTER_A_FAULT = 0.1  # Before the thread goes on after a bug of ours: it must not fill the log.


class _Relieved(BaseException):
    """Another thread has taken this one's place. Not an Exception, which would be caught on the way."""


class Stream(Protocol):
    """`backlog`: what is to be done for it once the thread that waits with it moves again; None while none does."""

    backlog: deque[Callable[[], object]] | None


@dataclass
class _Sending:
    stream: Stream
    began: float
    is_given_up: bool = False


class Relay:
    """Runs `turn` again and again, in one thread at a time. All that is sent goes by `send`.

    What has to be done even if a send before it doesn't return goes by `later`.
    """

    def __init__(self, turn: Callable[[], None], patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._turn = turn
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()  # Guards who is given up, and the backlogs.
        self._sending: _Sending | None = None
        self._jobs: deque[Callable[[], object]] = deque()
        self._closing = False
        self._closed = threading.Event()
        self._thread = threading.current_thread()

    def start(self) -> None:
        self._start_thread()
        threading.Thread(target=self._watch, name="relief", daemon=True).start()

    def close(self, wake: Callable[[], None]) -> None:
        """Returns after the last turn; `wake` hastens its end."""
        self._closing = True
        wake()
        while self._thread.is_alive():
            self._thread.join(self._patience_seconds)
        self._closed.set()

    def later(self, job: Callable[[], object]) -> None:
        """For the next `work`, of whichever thread."""
        self._jobs.append(job)

    def work(self) -> None:
        while self._jobs:
            self._jobs.popleft()()

    def send(self, stream: Stream, act: Callable[[], object]) -> bool:
        """Whether it went well, or is left to the thread that the stream has for itself."""
        with self._lock:
            if stream.backlog is not None:
                stream.backlog.append(act)
                return True
            sending = self._sending = _Sending(stream, time.monotonic())
        went_well = attempt("sending", act)
        with self._lock:
            if not sending.is_given_up:
                self._sending = None
                return went_well
        while (gathered := self._gathered(stream)) is not None:
            attempt("sending", gathered)
        raise _Relieved

    def _gathered(self, stream: Stream) -> Callable[[], object] | None:
        """The next thing that is to be done for it; None: nothing, and it is everybody's again."""
        with self._lock:
            if stream.backlog:
                return stream.backlog.popleft()
            stream.backlog = None
            return None

    def _start_thread(self) -> None:
        self._thread = threading.Thread(target=self._run, name="delivery", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with suppress(_Relieved):
            while not self._closing:
                if not attempt("delivery", self._turn):
                    time.sleep(_SECONDS_AFTER_A_FAULT)

    def _watch(self) -> None:
        while not self._closed.wait(self._patience_seconds / 2):
            with self._lock:
                sending = self._sending
                if sending is None or time.monotonic() - sending.began < self._patience_seconds:
                    continue
                sending.stream.backlog = deque()
                sending.is_given_up, self._sending = True, None
            log.warning("a response is not taken, so its stream waits for that alone")
            self._start_thread()
