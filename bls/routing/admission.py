"""Whether a request may come in now, and to which engine: by the places that are left, and by how long it would wait.

Places are router processes: one that waits for an engine is lost to all others. So an engine holds only so many of them
(MAX_IN_FLIGHT, else a share), all engines together leave some free, and what is beyond is turned away within
milliseconds instead of waiting in Triton's queue for a process. Priority 1 is turned away last. With fewer than
8 processes none is left free: then requests wait in Triton's queue, and only MAX_IN_FLIGHT holds here.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bls.errors import Overloaded
from bls.routing.settings import Settings
from bls.routing.shared_table import SharedTable
from bls.routing.table_layout import ANSWERING
from bls.routing.waiting import REQUEST_WORK, Waiting

_LEAST_INSTANCES = 8
_CHARACTERS_A_TOKEN = 4
_LOOK_SECONDS = 1.0
_LONGEST_HINT_SECONDS = 10
_PATIENCE_INSIDE = 1.5  # Who was let in has cost something: only a wait that is clearly too long turns it away then.
_PATIENCE = {1: 2.0, 3: 0.5}  # By priority: times the wait that others may expect.


@dataclass(frozen=True)
class Places:
    """How many requests may be at the engines, of a server with so many router processes; from 8 on some stay free."""

    instances: int

    @property
    def free(self) -> int:
        """Left for refusals, for requests that are turned away, and for priority 1."""
        return math.ceil(self.instances / 10) if self.instances >= _LEAST_INSTANCES else 0

    @property
    def all(self) -> int:
        return self.instances - self.free

    def total(self, settings: Settings) -> int:
        """At all engines together; if the policy has a number for each of them, those are meant."""
        given = settings.max_in_flight
        return sum(given.values()) if set(given) == set(settings.models) else self.all

    def at(self, model: str, settings: Settings) -> int:
        """At one engine, so that the others have some left."""
        if not self.free:
            return settings.max_in_flight.get(model, sys.maxsize)
        share = self.all - math.ceil(self.all / 10) if len(settings.models) > 1 else self.all
        return settings.max_in_flight.get(model, share)


class Admission:
    """Asked when a request arrives, and again before each engine."""

    def __init__(self, table: SharedTable, instances: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._places = Places(instances)
        self._clock = clock
        self._waiting = Waiting(table, clock)
        self._looked = -2 * _LOOK_SECONDS

    def arrive(self, settings: Settings, characters: int, priority: int) -> None:
        """Lets a request of so many characters in. Raises Overloaded if no engine can take it in time."""
        if self._clock() - self._looked > _LOOK_SECONDS:
            self._table.look_lately()
            self._looked = self._clock()
        if self._places.free:
            self._check_places(settings, priority)
            self._check_wait(settings.models, settings, priority)
        self._waiting.arrive(REQUEST_WORK + characters / _CHARACTERS_A_TOKEN)

    def answers(self, requests: int) -> None:
        """Notes how many this process answers."""
        self._table.own[ANSWERING] = requests

    @property
    def left_behind(self) -> int:
        """How many a process was answering when it died whose place this one has taken."""
        return self._table.left_behind

    def leave_door(self) -> float | None:
        """It goes on to an engine, or has ended without one. Gives when it came; None if it had left the door."""
        return self._waiting.leave_door()

    def check(self, model: str, settings: Settings, priority: int) -> None:
        """Raises Overloaded if the engine has no place, or too long a queue, for one that is in."""
        in_flight = int(self._table.in_flight[self._table.alive, self._table.slot(model)].sum())
        if in_flight >= self._places.at(model, settings):
            raise Overloaded(f"{model} answers {in_flight} requests, its most")
        if self._places.free:
            self._check_wait((model,), settings, priority, _PATIENCE_INSIDE)

    def is_quiet(self, model: str) -> bool:
        """Whether nothing waits for its first token at the engine."""
        return self._waiting.work(self._table.slot(model)) == 0

    def _check_places(self, settings: Settings, priority: int) -> None:
        most = self._places.total(settings) + {1: 1, 3: -1}.get(priority, 0) * (self._places.free // 2)
        taken = int(self._table.in_flight[self._table.alive].sum()) + self._waiting.at_door()
        if taken >= most:
            raise Overloaded(f"{taken} requests are being answered, the most at a time")

    def _check_wait(self, models: Sequence[str], settings: Settings, priority: int, patience: float = 1.0) -> None:
        waits = (self._waiting.expected_seconds(self._table.slot(model), settings.max_wait_seconds) for model in models)
        seconds = min(waits)
        limit = settings.max_wait_seconds * _PATIENCE.get(priority, 1.0) * patience
        if seconds > limit:
            raise Overloaded(
                f"the first token would take {seconds:.1f} s", min(_LONGEST_HINT_SECONDS, math.ceil(seconds - limit))
            )
