"""Requests whose grammar is being compiled, in a thread beside the steps: other requests' tokens go on meanwhile.

One at a time, and the next begins when the last was taken: the library makes a step that adds a request with a grammar
wait for any compilation that runs.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from bls.errors import RouterError
from engines.worker.generation import Generation, Guide

_NICENESS = 10

Compiled = tuple[int, Generation, RouterError | None]


class Compiling:
    """`compile_grammar` raises a RouterError for one that is wrong."""

    def __init__(self, compile_grammar: Callable[[Guide], Any]) -> None:
        self._compile = compile_grammar
        self._thread = ThreadPoolExecutor(1, "grammar", initializer=_let_the_steps_go_first)
        self._requests: deque[tuple[int, Generation]] = deque()  # The first one is being compiled.
        self._running: Future[Any] | None = None
        self._cancelled: set[int] = set()

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, key: int, generation: Generation) -> None:
        self._requests.append((key, generation))
        self._begin()

    def cancel(self, key: int) -> bool:
        """Whether the request was here. What is being compiled goes on, for nobody."""
        is_here = any(key == waiting for waiting, _ in self._requests)
        if is_here:
            self._cancelled.add(key)
        return is_here

    def take(self, wait_seconds: float) -> Iterator[Compiled]:
        """The request that is ready, with what was wrong in its grammar, if there is one."""
        if self._running is None or not wait([self._running], wait_seconds).done:
            return
        done, self._running = self._running, None
        key, generation = self._requests.popleft()
        error = done.exception()
        if error is not None and not isinstance(error, RouterError):
            raise error
        if key not in self._cancelled:
            yield key, generation, error
        self._cancelled.discard(key)
        self._begin()

    def close(self) -> None:
        self._thread.shutdown()

    def _begin(self) -> None:
        while self._running is None and self._requests:
            key, generation = self._requests[0]
            if key in self._cancelled:
                self._cancelled.discard(key)
                self._requests.popleft()
            elif generation.guide is not None:
                self._running = self._thread.submit(self._compile, generation.guide)


def _let_the_steps_go_first() -> None:
    """Linux's niceness is a thread's own, and that of the threads that it starts."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
