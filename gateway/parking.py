"""Where requests wait while the server behind the gateway is away: for so long at most, and so many."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from gateway.failures import AboutToEnd, Away, Failure, Overloaded

PROBE_EVERY_S = 0.1
_SPREAD_S = 0.1  # so that not all who waited come at once


class Parking:
    """`is_back` asks the server; it is asked only while somebody waits, by one task for all."""

    def __init__(self, is_back: Callable[[], Awaitable[bool]], longest_s: float, most: int) -> None:
        self._is_back = is_back
        self._longest_s = longest_s
        self._most = most
        self._waiting: set[asyncio.Future[bool]] = set()
        self._prober: asyncio.Task[None] | None = None
        self.is_closed = False
        self.total = 0

    @property
    def parked(self) -> int:
        return len(self._waiting)

    def ticket(self) -> Ticket:
        """For one request, all its tries together."""
        return Ticket(self)

    def close(self) -> None:
        """Nobody waits any longer."""
        self.is_closed = True
        for future in self._waiting:
            if not future.done():
                future.set_result(False)

    def open(self) -> None:
        """After `close`: who waits from now on is let wait."""
        self.is_closed = False

    async def wait(self, until: float, why: Failure) -> None:
        """Returns once the server is back. Raises `why` at `until`, Overloaded where too many wait already."""
        if self.is_closed:
            raise self._refusal(why)
        if time.monotonic() >= until:
            raise why
        if len(self._waiting) >= self._most:
            raise Overloaded("the server is away, and too many requests wait for it")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self._waiting.add(future)
        if self._prober is None or self._prober.done():
            self._prober = loop.create_task(self._probe())
        timer = loop.call_later(until - time.monotonic(), _settle, future)
        try:
            if not await future:
                raise self._refusal(why)
        finally:
            timer.cancel()
            self._waiting.discard(future)

    def _refusal(self, why: Failure) -> Failure:
        return AboutToEnd("the gateway is about to end; ask again") if self.is_closed else why

    async def _probe(self) -> None:
        while self._waiting:
            if await self._is_back():
                for future in self._waiting:
                    if not future.done():
                        future.set_result(True)
                return
            await asyncio.sleep(PROBE_EVERY_S)


class Ticket:
    """One request's way through the parking."""

    def __init__(self, parking: Parking) -> None:
        self._parking = parking
        self._until: float | None = None
        self._pause_s = PROBE_EVERY_S

    async def wait(self, why: Away) -> None:
        """Before another try. Raises `why` when the time is up."""
        if self._until is None:
            self._until = time.monotonic() + self._parking._longest_s
            self._parking.total += 1
        else:
            # The server said that it is back, and yet the try failed: an engine is away, perhaps. So ever more slowly.
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, 1.0)
        await self._parking.wait(self._until, why)
        await asyncio.sleep(random.uniform(0, _SPREAD_S))


def _settle(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)
