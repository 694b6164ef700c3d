"""The streams of an engine by their worker's keys, from Triton's request to the last word to its client.

A stream that ends before the worker says so is owed: the worker still has a place for it until it moves again.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from bls.errors import BadRequest
from bls.ports import Sender
from engines.triton.coalescer import Pace
from engines.triton.stream import Stream
from engines.triton.tensors import EngineRequest

# How long the worker may take to end a request that is stopped: some steps.
STOP_SECONDS = 0.1

Keyed = list[tuple[int, Stream]]


class Streams:
    """Not safe for threads. Its length counts what takes a place: the running, the held and the owed."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._keys = itertools.count()
        self._running: dict[int, Stream] = {}
        self._held: set[int] = set()  # Those of them that the worker doesn't know yet.
        self._owed: set[int] = set()
        self._stopped: dict[int, float] = {}  # Key -> when its stream ends whatever the worker does.

    def __len__(self) -> int:
        return len(self._running) + len(self._owed)

    @property
    def is_busy(self) -> bool:
        """Whether the worker has something to do."""
        return bool(self._owed) or len(self._running) > len(self._held)

    def all(self) -> Keyed:
        return list(self._running.items())

    def sent(self) -> Keyed:
        """Those that the worker knows."""
        return [(key, stream) for key, stream in self._running.items() if key not in self._held]

    def check_ids(self, request_ids: Sequence[str]) -> None:
        """Raises BadRequest for an id that is running already."""
        running = {stream.request_id for stream in self._running.values()}
        for request_id in request_ids:
            if request_id and request_id in running:
                raise BadRequest(f"a request with the id {request_id!r} is running already")

    def begin(
        self, request_id: str, request: EngineRequest, requested: frozenset[str], sender: Sender, is_held: bool = False
    ) -> int:
        """The key of a new stream. One that is held needs `release` before the worker may know of it."""
        key = next(self._keys)
        self._running[key] = Stream(request_id, request, requested, sender, self._pace)
        if is_held:
            self._held.add(key)
        return key

    def release(self, key: int) -> bool:
        """Whether the stream still waits for the worker."""
        self._held.discard(key)
        return key in self._running

    def stop(self, request_id: str, now: float) -> list[int]:
        """The keys of that id. They end soon, see `overdue`."""
        keys = [key for key, stream in self._running.items() if stream.request_id == request_id]
        for key in keys:
            self._stopped.setdefault(key, now + STOP_SECONDS)
        return keys

    def overdue(self, now: float) -> list[int]:
        """The stopped ones that the worker has not ended in time."""
        return [key for key, until in self._stopped.items() if until <= now]

    def take(self, key: int) -> Stream | None:
        """Takes a stream out that ends before the worker says so; None if it has ended."""
        stream = self._running.pop(key, None)
        self._stopped.pop(key, None)
        if stream is not None and key not in self._held:
            self._owed.add(key)
        self._held.discard(key)
        return stream

    def find(self, key: int, is_last: bool) -> Stream | None:
        """Whose news these are; None of one that was taken out before: it has its answer."""
        if not is_last:
            return self._running.get(key)
        self._owed.discard(key)
        self._stopped.pop(key, None)
        return self._running.pop(key, None)

    def take_all(self) -> list[Stream]:
        """All of them, when the worker is gone."""
        streams = list(self._running.values())
        for keys in (self._running, self._stopped):
            keys.clear()
        self._held.clear()
        self._owed.clear()
        return streams

    def due(self) -> list[tuple[float, int, Stream]]:
        """What has ids to send, and when."""
        return [(due, key, stream) for key, stream in self._running.items() if (due := stream.due()) is not None]

    def next_end(self) -> float | None:
        """When the first stopped one ends."""
        return min(self._stopped.values(), default=None)
