"""Answers of the router: tried again while the server is away, several side by side, stopped when they are left."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from gateway import ask as asks
from gateway.ask import Ask, Piece
from gateway.failures import Away, Failure
from gateway.parking import Parking
from gateway.settings import Settings
from gateway.tracing import Trace
from gateway.triton import Triton

_MORE_S = 30.0  # beyond the router's own timeout, which should come first
_AHEAD = 8  # pieces of each of several answers that wait for the client

Pieces = AsyncGenerator[tuple[int, Piece], None]


class Generation:
    def __init__(self, triton: Triton, parking: Parking, settings: Settings) -> None:
        self._triton = triton
        self._parking = parking
        self._settings = settings
        self._own = secrets.token_hex(4)  # other processes number theirs too
        self._numbers = itertools.count(1)

    def answers(self, wanted: Sequence[Ask], request_id: str, tenant: str, trace: Trace) -> Pieces:
        """The pieces of all answers as they come, each with its answer's place. Close it to stop what still runs.

        Raises a Failure; the first one ends all.
        """
        if len(wanted) == 1:
            return self._only(wanted[0], request_id, tenant, trace)
        return self._merged([self._only(ask, request_id, tenant, trace) for ask in wanted])

    async def _only(self, ask: Ask, request_id: str, tenant: str, trace: Trace) -> Pieces:
        # Two requests of one id that run at the same time would be one to the server.
        request = asks.request_of(
            ask, f"{request_id}-{self._own}-{next(self._numbers)}", tenant, self._settings.timeout_s
        )
        until = time.monotonic() + self._settings.timeout_s + _MORE_S
        ticket, has_begun = None, False
        while True:
            try:
                async with aclosing(self._triton.stream(request, until - time.monotonic(), trace)) as responses:
                    async for response in responses:
                        has_begun = True
                        yield 0, asks.piece_of(response)
                return
            except Away as away:
                if has_begun:
                    raise
                failure = away
            ticket = ticket or self._parking.ticket()
            await ticket.wait(failure)

    async def _merged(self, streams: Sequence[Pieces]) -> Pieces:
        arrived: asyncio.Queue[tuple[int, Piece | Failure | None]] = asyncio.Queue(_AHEAD * len(streams))
        tasks = [asyncio.create_task(_feed(place, stream, arrived)) for place, stream in enumerate(streams)]
        try:
            running = len(streams)
            while running:
                place, item = await arrived.get()
                if isinstance(item, Piece):
                    yield place, item
                elif item is None:
                    running -= 1
                else:
                    raise item
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def _feed(place: int, stream: Pieces, arrived: asyncio.Queue[tuple[int, Piece | Failure | None]]) -> None:
    try:
        async with aclosing(stream):
            async for _, piece in stream:
                await arrived.put((place, piece))
        await arrived.put((place, None))
    except Failure as failure:
        await arrived.put((place, failure))
