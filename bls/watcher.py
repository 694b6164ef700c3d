"""Notices a client that left, and a deadline that passed, while the router waits for a silent engine.

The router's thread blocks inside Triton until the engine's next token, so a second thread of the process asks. It
touches only the running request's sender and the non-decoupled `engine_control`, which is safe beside a stream.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from bls.errors import RouterError

CANCELLED, TIMEOUT = "cancelled", "timeout"
GONE = "gone"  # What `give_up` hears of an engine whose process died.
# So many looks in a row find it gone by then: what it said last may still be on its way, and so may Triton's own error,
# after which another engine can be asked, for who has no token yet.
_LOOKS_WITH_A_TOKEN, _LOOKS_WITHOUT = 2, 12

POLL_SECONDS = 0.25  # A look is a round trip to the server, by each of 32 processes; a late one costs a few tokens.
_FLOWING_SECONDS = 0.15  # The router's own thread looks instead, with the first response after so long,
_STALLED_SECONDS = 0.5  # and while it does, the watcher sleeps; of an engine that falls silent it hears after this.
GRACE_SECONDS = 5.0  # After a stop, before an engine that does not end its stream is given up.


class Watch:
    """One running request. `outcome` is None, "cancelled" or "timeout"; then `stop_engine` is called until the end.

    So it is while `is_late`: when an engine has given no token in the time that `attempt` allowed.
    """

    def __init__(
        self, is_cancelled: Callable[[], bool], timeout_seconds: float, give_up: Callable[[str], None]
    ) -> None:
        self.outcome: str | None = None
        self.deadline = time.monotonic() + timeout_seconds
        self.stop_engine: Callable[[], None] | None = None
        self.is_late = False
        self._first_token_by: float | None = None
        self._late = threading.Lock()  # A token that comes in the moment when it is too late is either or, for both.
        self._is_cancelled = is_cancelled
        self._give_up = give_up
        self._looked = time.monotonic()
        self._is_flowing = False  # It was the router's own thread that looked last.
        self._ended_at = 0.0
        self._stopping: threading.Thread | None = None
        self._is_gone: Callable[[], bool] = lambda: False
        self._let_go: Callable[[], None] = lambda: None
        self._looks_without_it = 0
        self._has_token = False

    def look(self) -> str | None:
        """Asks now; the first answer stands."""
        now = self._looked = time.monotonic()
        if self.outcome is None:
            if now >= self.deadline:
                self.outcome = TIMEOUT
            elif self._is_cancelled():
                self.outcome = CANCELLED
            if self.outcome is not None:
                self._ended_at = now
        return self.outcome

    def attempt(self, stop_engine: Callable[[], None], first_token_seconds: float | None = None) -> None:
        """Another engine is about to be tried; None lets it take its time."""
        with self._late:
            self.stop_engine, self.is_late, self._has_token = stop_engine, False, False
            self._first_token_by = None if first_token_seconds is None else time.monotonic() + first_token_seconds

    def depend_on(self, is_gone: Callable[[], bool], let_go: Callable[[], None]) -> None:
        """The engine's process: if it dies, the stream never ends. `let_go` then gives back what the request holds."""
        self._is_gone, self._let_go, self._looks_without_it = is_gone, let_go, 0

    def first_token_came(self) -> bool:
        """Whether it came in time. If not, the engine is being stopped, and what it says is cut off somewhere."""
        with self._late:
            self._first_token_by, self._has_token = None, True
            return not self.is_late

    def look_when_due(self) -> str | None:
        """The same for the router's own thread, which is awake with each token and spares the watcher's waking up."""
        if time.monotonic() - self._looked < _FLOWING_SECONDS:
            return self.outcome
        self._is_flowing = True
        return self.look()

    def seconds_to_next_look(self) -> float:
        """Of the watcher."""
        now = time.monotonic()
        if self.outcome is not None:
            return max(0.0, self._looked + POLL_SECONDS - now)
        first_token_by = self._first_token_by
        until = [self._looked + (_STALLED_SECONDS if self._is_flowing else POLL_SECONDS), self.deadline]
        if first_token_by is not None and not self.is_late:
            until.append(first_token_by)
        return max(0.0, min(until) - now)

    def enforce(self) -> None:
        """Looks, and stops the engine of a request that has ended: again each time, as a stop may come too early."""
        self._is_flowing = False
        outcome = self.look()
        if self._has_lost_its_engine():
            self._give_up(GONE)
            self._let_go()
            self.end()
            return
        with self._late:
            stop_engine = self.stop_engine
            if self._first_token_by is not None and time.monotonic() >= self._first_token_by:
                self.is_late = True
            if outcome is None and not self.is_late:
                return
        if self._stopping is None or not self._stopping.is_alive():
            # A thread of its own: the stop of an engine that hangs doesn't return, and the client must not wait for it.
            self._stopping = threading.Thread(target=_stop, args=(stop_engine,), name="stop", daemon=True)
            self._stopping.start()
        if outcome is not None and time.monotonic() - self._ended_at > GRACE_SECONDS:
            self._give_up(self.outcome or CANCELLED)

    def _has_lost_its_engine(self) -> bool:
        self._looks_without_it = self._looks_without_it + 1 if self._is_gone() else 0
        return self._looks_without_it >= (_LOOKS_WITH_A_TOKEN if self._has_token else _LOOKS_WITHOUT)

    def end(self) -> None:
        """The request is over: nothing of it is held any more, nor asked again."""
        self._is_gone, self._let_go = lambda: False, lambda: None
        self.stop_engine = None
        self._is_cancelled = lambda: False
        self._give_up = lambda outcome: None


def _stop(stop_engine: Callable[[], None] | None) -> None:
    """`stop_engine` as it was when the stop was decided: by now another engine may be tried."""
    try:
        if stop_engine is not None:
            stop_engine()
    except RouterError as error:
        logging.warning("the engine could not be stopped: %s", error)
    except Exception:
        logging.exception("stop")


class Watcher:
    """The thread: sleeps without a request, else looks every POLL_SECONDS and at the deadline."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watch: Watch | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._thread.start()

    def follow(self, watch: Watch | None) -> None:
        """From now on looks after `watch`; None for no request."""
        with self._changed:
            self._watch = watch
            if watch is not None:
                self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout=GRACE_SECONDS)

    def _run(self) -> None:
        while not self._closed:
            try:
                self._step()
            except Exception:  # This thread must outlive any one request.
                logging.exception("watcher")

    def _step(self) -> None:
        """One look, when it is due. Between two steps the thread holds no request."""
        with self._changed:
            while self._watch is None and not self._closed:
                self._changed.wait()
            watch = self._watch
            if watch is None or self._closed:
                return
            # Not woken by the request's end: a request shorter than one look costs nothing more.
            self._changed.wait(watch.seconds_to_next_look())
            if self._watch is not watch or watch.seconds_to_next_look() > 0:
                return
        watch.enforce()
