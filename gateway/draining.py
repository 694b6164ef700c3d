"""Whether the gateway takes new requests, and since when it doesn't: as all its processes see it.

A drain has two parts. In the lame duck's, /ready says no and new requests are still answered, so that a balancer can
notice before anybody is turned away; then new requests are turned away, and those that run are sent to their end.
"""

from __future__ import annotations

import logging
import mmap
import struct
import time
from collections.abc import Callable

from gateway.parking import Parking

_SINCE = struct.Struct("d")


class Drain:
    """Made before the processes are forked: what `begin` and `cancel` do is for all of them, `end` for this one."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, _SINCE.size)  # time.monotonic, which is the machine's; 0 while it serves
        self._ending: float | None = None

    def begin(self) -> None:
        """Nothing changes if it has begun already."""
        if not self._shared_since():
            self._write(time.monotonic())

    def cancel(self) -> None:
        """New requests are taken again, but by a process that ends."""
        self._write(0.0)

    def end(self) -> None:
        """This process is to end."""
        if self._ending is None:
            self._ending = time.monotonic()

    @property
    def since(self) -> float | None:
        """When it began, by time.monotonic; None while new requests are welcome."""
        found = [each for each in (self._shared_since(), self._ending) if each]
        return min(found, default=None)

    @property
    def is_on(self) -> bool:
        return self.since is not None

    def refuses(self, lame_duck_s: float) -> bool:
        """Whether new requests are turned away, so many seconds after the beginning."""
        return (since := self.since) is not None and time.monotonic() - since >= lame_duck_s

    def _shared_since(self) -> float:
        return float(_SINCE.unpack(self._shared)[0])

    def _write(self, value: float) -> None:
        _SINCE.pack_into(self._shared, 0, value)


class Draining:
    """One process's part in it. `look` several times a second.

    `close_idle` closes connections on which nothing is asked; where something is, it is their last.
    """

    def __init__(self, drain: Drain, lame_duck_s: float, parking: Parking) -> None:
        self.close_idle: Callable[[], None] = lambda: None
        self._drain = drain
        self._lame_duck_s = lame_duck_s
        self._parking = parking
        self._was_on = False

    @property
    def is_on(self) -> bool:
        """Whether /ready says no."""
        return self._drain.is_on

    @property
    def refuses(self) -> bool:
        """Whether new requests are turned away."""
        return self._drain.refuses(self._lame_duck_s)

    @property
    def lame_duck_left_s(self) -> float:
        """Until they are; 0 where no drain is on."""
        since = self._drain.since
        return 0.0 if since is None else max(0.0, since + self._lame_duck_s - time.monotonic())

    def set(self, drains: bool) -> None:
        """For all processes of the gateway."""
        if drains:
            self._drain.begin()
        else:
            self._drain.cancel()

    def end(self) -> None:
        """For this process, for good."""
        self._drain.end()

    def look(self, running: int) -> None:
        """Where new requests are turned away, those that are parked are too; `running` answers go on."""
        if self.is_on != self._was_on:
            self._was_on = self.is_on
            logging.info("draining: /ready says no" if self._was_on else "serving again")
        if not self.refuses:
            self._parking.open()
            return
        if not self._parking.is_closed:
            logging.info("new requests are turned away; %d answers run, and are sent to their end", running)
            self._parking.close()
        self.close_idle()
