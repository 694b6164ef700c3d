"""A thread beside the request's own, for one call at a time to a model that may take long or freeze."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Beside:
    """`start` gives a call to the thread. A call that never comes back keeps the thread, and nobody else."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._last: Future[Any] | None = None
        # Not an executor's: those are waited for at the interpreter's end, however long they take.
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def start(self, call: Callable[[], T]) -> Future[T] | None:
        """What the call will give; None while an earlier one has not come back."""
        if self._last is not None and not self._last.done():
            return None
        future: Future[T] = Future()
        self._last = future
        self._calls.put((call, future))
        return future

    def close(self) -> None:
        """Ends the thread, once it has nothing to do."""
        self._calls.put(None)

    def _run(self) -> None:
        while (task := self._calls.get()) is not None:
            call, future = task
            try:
                future.set_result(call())
            except BaseException as error:  # For who waits for it.
                future.set_exception(error)
            del task, call, future  # Between two calls the thread holds no request.
