"""Requests of near lengths sent together, for a server whose batch runs to its longest member."""

from __future__ import annotations

import asyncio


class LengthBuckets:
    """Holds each request until `size` of about its length wait, at most `wait_s` seconds.

    Two lengths share a bucket if they lie between the same powers of two: the shorter is at least half the longer.
    """

    def __init__(self, size: int, wait_s: float) -> None:
        self._size = size
        self._wait_s = wait_s
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}

    async def turn(self, length: int) -> None:
        """Returns when a request of this length is to be sent."""
        loop = asyncio.get_running_loop()
        key = length.bit_length()
        bucket = self._waiting.setdefault(key, [])
        place: asyncio.Future[None] = loop.create_future()
        bucket.append(place)
        if len(bucket) >= self._size:
            del self._waiting[key]
            loop.call_soon(_release, bucket)  # Not now: this one would go before those that waited longer.
        elif len(bucket) == 1:
            loop.call_later(self._wait_s, self._give_up_waiting, key, bucket)
        await place

    def _give_up_waiting(self, key: int, bucket: list[asyncio.Future[None]]) -> None:
        if self._waiting.get(key) is bucket:
            del self._waiting[key]
            _release(bucket)


def _release(bucket: list[asyncio.Future[None]]) -> None:
    for place in bucket:
        if not place.done():
            place.set_result(None)
