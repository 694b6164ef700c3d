"""Calls to a server that has stopped answering without closing its connection: it was frozen, or its machine is gone.

Nothing would end them before their own deadline, which is minutes away. So the server is asked whether it lives as soon
as a call has heard nothing for a while; where it doesn't say so several times in a row, the calls that wait are ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gateway.failures import Away

MISSES = 3


class Waiting:
    """A call that waits. `since` is to be set whenever it hears something."""

    __slots__ = ("call", "is_given_up", "since")

    def __init__(self, call: Any) -> None:
        self.call = call
        self.since = time.monotonic()
        self.is_given_up = False


class Silence:
    """`answers` asks the server, and is False only where it said nothing in time."""

    def __init__(self, answers: Callable[[], Awaitable[bool]], silent_s: float) -> None:
        self._answers = answers
        self._silent_s = silent_s
        self._waiting: set[Waiting] = set()

    @contextmanager
    def minded(self, call: Any) -> Iterator[Waiting]:
        """The block reads the call. Raises Away where it was given up."""
        waiting = Waiting(call)
        self._waiting.add(waiting)
        try:
            yield waiting
        except asyncio.CancelledError:
            if not waiting.is_given_up:
                raise
            raise Away("the server behind the gateway does not answer any more") from None
        finally:
            self._waiting.discard(waiting)

    async def mind(self) -> None:
        """Runs for ever."""
        misses = 0
        while True:
            await asyncio.sleep(self._silent_s / 2)
            misses = misses + 1 if self._silent() and not await self._answers() else 0
            if misses >= MISSES:
                for waiting in self._silent():
                    waiting.is_given_up = True
                    waiting.call.cancel()

    def _silent(self) -> list[Waiting]:
        before = time.monotonic() - self._silent_s
        return [waiting for waiting in self._waiting if waiting.since < before]
