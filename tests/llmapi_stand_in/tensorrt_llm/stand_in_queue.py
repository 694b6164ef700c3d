"""A queue that any thread fills and the loop that it was made on empties, as the LLM API has them."""

from __future__ import annotations

import asyncio
import collections
from typing import Any


class EventLoopShutdownError(Exception):
    pass


def has_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class AsyncQueue:
    def __init__(self) -> None:
        self._items: collections.deque[Any] = collections.deque()
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def put(self, item: Any) -> None:
        self._items.append(item)
        if not self._loop.is_running():
            raise EventLoopShutdownError
        self._loop.call_soon_threadsafe(self._event.set)

    async def get(self, timeout: float | None = None) -> Any:
        """The next item; None if there was none for `timeout` seconds."""
        while not self._items:
            self._event.clear()
            try:
                await asyncio.wait_for(self._event.wait(), timeout)
            except asyncio.TimeoutError:
                return None
        return self._items.popleft()
